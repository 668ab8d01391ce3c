"""The table of error codes: complete, as the docs page has it."""

from pathlib import Path

from pulsar_spark import error_table
from tests.test_errors import CLASSES


def test_each_code_is_explained_in_the_order_of_the_tree():
    table = error_table.explanations()
    assert [(each.code, each.is_retriable) for each in table] == [
        (kind.code, kind.retriable) for kind in CLASSES
    ]
    for each in table:
        assert each.meaning.endswith("."), each
        assert each.advice.endswith("."), each
        assert "``" not in each.meaning, each


def test_the_docs_page_is_the_table():
    page = (Path(__file__).parent / "../docs/errors.md").read_text()
    assert page == error_table.docs_page(), "run: python -m pulsar_spark.spark errors > docs/errors.md"


def test_each_code_has_its_line_on_the_docs_page():
    page = error_table.docs_page().splitlines()
    for kind in CLASSES:
        (line,) = (line for line in page if line.startswith(f"| `{kind.code}` |"))
        assert (line.split(" | ")[2].strip() == "yes") == kind.retriable, kind


def test_errors_of_spark_s_own_follow():
    _, _, sparks = error_table.docs_page().partition("## Spark's own errors")
    for name in ("DATA_SOURCE_NOT_FOUND", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        assert f"| `{name}` | " in sparks
