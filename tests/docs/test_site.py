"""The site: its length, its contents, and the page that says where a change goes."""

import re

from integration.docs import ROOT, blocks

DOCS = ROOT / "docs"


def test_the_users_site_stays_short():
    """Pages for developers, which are in a separate folder, are not counted."""
    # 25,000, and what Pulsar 5 and its scalable topics take.
    assert sum(len(page.read_text().split()) for page in DOCS.glob("*.md")) <= 25_850


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
    """A path begins at the root or in the package; a name alone is that of some file."""
    page = (DOCS / "developers/changes.md").read_text()
    parts = [ROOT / name for name in ("pulsar_spark", "tests", "integration", "docs", "conf", "proto")]
    names = {file.name for part in parts for file in part.rglob("*.*")}
    for path in re.findall(r"`([\w/.-]+\.(?:py|js|json|yaml|md|proto))`", page):
        is_there = (ROOT / path).is_file() or (ROOT / "pulsar_spark" / path).is_file()
        assert is_there or path in names, path
