import re
from pathlib import Path

from docs.pages.options_page import _grouped, docs_page
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.option import Parser, Table
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE
from pulsar_spark.spark.options.values import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]


def test_the_docs_page_is_the_table():
    page = (ROOT / "docs/options.md").read_text()
    assert page == docs_page(), "run: python -m docs.pages options > docs/options.md"


def test_each_row_has_an_anchor_and_says_if_it_is_for_streams_or_batches_only():
    rows = dict(re.findall(r'^\| <a id="([\w.-]+)"></a>.* \| (.*) \|$', docs_page(), re.MULTILINE))
    assert rows["endingtime"].startswith("Batches only. ")
    assert rows["maxtriggerdelay"].startswith("Streams only. ")
    assert not rows["topic"].startswith(("Batches", "Streams"))
    assert len(rows) == len([*CONNECTION, *SOURCE, *SINK]) - len([*SCHEMAS])


def test_pages_that_are_named_are_links():
    assert "See [Schemas](schemas.md)." in docs_page()
    assert "docs/" not in docs_page().partition("<!--")[0]


def test_an_option_that_no_pattern_matches_is_shown_all_the_same():
    table = Table()
    for name in ("topic", "topicsPattern", "unheardOf"):
        table.add_optional(name, Parser("text", str), "A text.")
    groups = {
        name: [option.name for option in options] for name, options in _grouped(table, {"names": ("topic*",)})
    }
    assert groups == {"names": ["topic", "topicsPattern"], "more": ["unheardOf"]}
