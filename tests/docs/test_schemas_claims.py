"""Each claim of docs/schemas.md has a test: schemas_claims.txt says which.

There a claim is a line, and the tests that fail if it is false are the indented lines below it. A claim is a
sentence, or a row of a table. ``-`` and words instead of a test: why there is none.
"""

import ast
import re
from functools import lru_cache
from pathlib import Path

from integration.docs import ROOT

PAGE = ROOT / "docs" / "schemas.md"
TABLE = Path(__file__).with_name("schemas_claims.txt")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(])")


def claims(page):
    """The sentences and the rows of tables of a page, without headings and code."""
    found = []
    for paragraph in _CODE.sub("", page).split("\n\n"):
        if paragraph.startswith("|"):
            found += paragraph.splitlines()[2:]
            continue
        for point in re.split(r"\n(?=\* )", paragraph.strip()):
            text = " ".join(point.split()).removeprefix("* ")
            if text and not text.startswith("#"):
                found += _SENTENCE.split(text)
    return found


def table():
    """The tests of each claim."""
    found, claim = {}, None
    for line in TABLE.read_text().splitlines():
        if line.startswith(" "):
            found[claim].append(line.strip())
        elif line:
            claim = line
            assert claim not in found, f"twice: {claim}"
            found[claim] = []
    return found


@lru_cache
def names_in(file):
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_claim_is_in_the_table_and_each_line_of_the_table_on_the_page():
    found, listed = claims(PAGE.read_text()), table()
    assert [claim for claim in found if claim not in listed] == [], "which test fails if this is false?"
    assert [claim for claim in listed if claim not in found] == [], "the page does not say this any more"


def test_each_claim_has_tests_that_exist():
    for claim, named in table().items():
        assert named, f"no test: {claim}"
        for name in named:
            if not name.startswith("- "):
                file, _, test = name.partition("::")
                assert test in names_in(file), f"{name} does not exist: {claim}"


def test_sentences_and_rows_are_claims():
    text = "# A\n\nOne is\nso. `two` too.\n\n* A point.\n* B: c.\n"
    page = text + "\n| a | b |\n|---|---|\n| 1 | 2. A |\n\n```\nCode. Not.\n```\n\nEnd"
    assert claims(page) == ["One is so.", "`two` too.", "A point.", "B: c.", "| 1 | 2. A |", "End"]
