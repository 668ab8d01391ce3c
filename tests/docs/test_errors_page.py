from pathlib import Path

from docs.pages.errors_page import docs_page
from tests.test_errors import CLASSES


def test_the_docs_page_is_the_table():
    page = (Path(__file__).parents[2] / "docs/errors.md").read_text()
    assert page == docs_page(), "run: python -m docs.pages errors > docs/errors.md"


def test_each_code_has_its_line():
    page = docs_page().splitlines()
    for kind in CLASSES:
        (line,) = (line for line in page if line.startswith(f"| `{kind.code}` |"))
        assert (line.split(" | ")[2].strip() == "yes") == kind.retriable, kind


def test_errors_of_spark_s_own_follow():
    _, _, sparks = docs_page().partition("## Spark's own errors")
    for name in ("DATA_SOURCE_NOT_FOUND", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        assert f"| `{name}` | " in sparks
