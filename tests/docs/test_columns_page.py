from pathlib import Path

from docs.pages.columns_page import COLUMN_TEXTS, docs_page
from pulsar_spark.spark.rows.schema import METADATA_COLUMNS
from pulsar_spark.spark.rows.write import written_types

ROOT = Path(__file__).resolve().parents[2]


def test_the_docs_page_is_the_table():
    page = (ROOT / "docs/columns.md").read_text()
    assert page == docs_page(), "run: python -m docs.pages columns > docs/columns.md"


def test_each_column_has_its_texts_and_no_other():
    assert COLUMN_TEXTS.keys() == METADATA_COLUMNS.keys() | written_types().keys()
    for name, text in COLUMN_TEXTS.items():
        assert bool(text.read) == bool(text.null_read) == (name in METADATA_COLUMNS), name
        assert bool(text.written) == bool(text.null_written) == (name in written_types()), name
