"""Links lead somewhere, pages that are named exist, and the pictures are those of their script."""

import importlib.util
import re
from urllib.parse import urlsplit

from integration.docs import PAGES, ROOT, anchors, links

SOURCES = [file for name in ("pulsar_spark", "examples") for file in (ROOT / name).rglob("*.py")]


def test_links_within_the_project():
    for page in PAGES:
        for target in links(page):
            check_link(page, target)


def check_link(page, target):
    where = f"{page.name}: {target}"
    address = urlsplit(target)
    if address.scheme:
        assert address.scheme == "https", where
        assert address.netloc, where
        return
    file = (page.parent / address.path).resolve() if address.path else page
    assert file.is_relative_to(ROOT), f"{where} is outside the project"
    assert file.is_file(), f"{where} is not there"
    if address.fragment:
        assert address.fragment in anchors(file), f"{where}: there is no such heading"


def test_pages_that_are_named():
    for file in [*PAGES, *SOURCES]:
        for name in re.findall(r"\bdocs/(?:[\w-]+/)*[\w-]+\.md\b", file.read_text()):
            assert (ROOT / name).is_file(), f"{file.relative_to(ROOT)} names {name}, which is not there"


def test_the_pictures_are_what_the_script_draws():
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs/img/draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, draw in module.PICTURES.items():
        assert (ROOT / "docs/img" / name).read_text() == draw(), "run: python docs/img/draw.py"
