"""The site: its length, its contents, and the page that says where a change goes."""

import re

from integration.docs import ROOT, blocks

DOCS = ROOT / "docs"


def test_the_users_site_stays_short():
    """Pages for developers, which are in a separate folder, are not counted."""
    assert sum(len(page.read_text().split()) for page in DOCS.glob("*.md")) <= 26_000


def test_each_page_is_once_in_the_contents():
    front = DOCS / "index.md"
    contents = [
        block.page.parent / f"{line}.md"
        for page in (front, DOCS / "developers/index.md")
        for block in blocks(page, "{toctree}")
        for line in block.text.splitlines()
        if line and not line.startswith(":")
    ]
    assert sorted([front, *contents]) == sorted(DOCS.rglob("*.md"))


def test_files_of_the_page_of_changes():
    """A path begins at the root or in the package; a name alone is that of some file, but not of a test."""
    page = (DOCS / "developers/changes.md").read_text()
    parts = [ROOT / name for name in ("pulsar_spark", "tests", "integration", "docs", "conf", "proto")]
    names = {file.name for part in parts for file in part.rglob("*.*")}
    for path in re.findall(r"`([\w/.-]+\.(?:py|js|json|yaml|md|proto))`", page):
        is_there = (ROOT / path).is_file() or (ROOT / "pulsar_spark" / path).is_file()
        assert is_there or (path in names and not path.startswith("test_")), path


def test_names_of_the_page_of_changes():
    """A name alone, as ``METRICS`` or ``Identity.http_headers``, is in the code."""
    page = (DOCS / "developers/changes.md").read_text()
    files = [file for part in ("pulsar_spark", "tests", "docs") for file in (ROOT / part).rglob("*.py")]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text())}
    named = re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?`", page)
    names = {name for name in named if not re.search(r"\.(?:py|js|json|yaml|md|proto)$", name)}
    assert {name for name in names if not words.issuperset(name.split("."))} == set()


def test_tables_of_options_are_those_of_the_page_of_changes():
    page = (DOCS / "developers/changes.md").read_text()
    scopes = page.partition("## Option")[2].partition("It has the name")[0]
    files = (ROOT / "pulsar_spark/spark/options").glob("*.py")
    tables = {file.name for file in files if re.search(r"^\w+ = Table\(", file.read_text(), re.MULTILINE)}
    assert set(re.findall(r"`(\w+\.py)`", scopes)) == tables
