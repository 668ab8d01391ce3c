from pathlib import Path

from docs.pages.options_page import _grouped, docs_page
from pulsar_spark.spark.options.option import Table

ROOT = Path(__file__).resolve().parents[2]


def test_the_docs_page_is_the_table():
    page = (ROOT / "docs/options.md").read_text()
    assert page == docs_page(), "run: python -m docs.pages options > docs/options.md"


def test_each_row_says_who_takes_the_option():
    rows = [line.split(" | ") for line in docs_page().splitlines() if line.startswith("| `")]
    takers = {name.strip("| `"): taker for name, taker, *_ in rows}
    assert takers["topic"] == "source, sink"
    assert takers["failOnDataLoss"] == "source"
    assert takers["endingTime"] == "batch source"
    assert takers["maxTriggerDelay"] == "stream source"
    assert takers["upsert"] == "sink"


def test_an_option_that_no_pattern_matches_is_shown_all_the_same():
    table = Table()
    for name in ("topic", "topicsPattern", "unheardOf"):
        table.add(name, "text", str, None, "A text.")
    groups = {
        name: [option.name for option in options] for name, options in _grouped(table, {"names": ("topic*",)})
    }
    assert groups == {"names": ["topic", "topicsPattern"], "more": ["unheardOf"]}
