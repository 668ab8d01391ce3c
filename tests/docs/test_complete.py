"""Every option, column, error code and metric is on its page; no phrase is there that must be read twice."""

import inspect
import re

import pytest

from integration.docs import PAGES, ROOT
from pulsar_spark import errors
from pulsar_spark.spark.monitoring.metrics import METRICS, PREFIX
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE
from pulsar_spark.spark.rows.metadata_columns import METADATA_COLUMNS
from pulsar_spark.spark.rows.write import written_types

DOCS = ROOT / "docs"
# Made from the code: their words are those of the options and errors.
GENERATED = {"options.md", "errors.md", "columns.md", "benchmarks.md"}
WRITTEN = [page for page in PAGES if page.name not in GENERATED | {"CHANGELOG.md"}]

# What readers had to read twice, and what is written instead.
UNCLEAR = {
    r"\btold of\b": "reported",
    r"\blikewise\b": "a sentence that stands alone",
    r"\bbehind (?:it|that|this|load|N|what|which|them|`)": "after",
    r"\bmade anew\b|\bplanned anew\b": "created again",
    r"\bwhat it stands on\b": "what it requires",
    r"\bthere twice\b|\bcomes? twice\b": "duplicated",
    r"\bwhere the namespace deduplicates\b": "if the namespace has deduplication enabled",
    r"\bqueries that are gone\b|\bgone for good\b": "deleted queries",
    r"\bsome times the usual\b": "a few times your normal",
    r"\bthose that (?:there are|are named|come later)\b": "name them",
    r"\bare none\b": "are not ...",
    r"\bprotects from nobody\b": "offers no protection",
    r"\bTwo settings of a namespace\b": "Two namespace policies",
    r"\bbut for the\b": "unless, except",
    r"\bgoes? on\b|\bgoing on\b|\bwent on\b": "continues",
    r"\bhow it is served is yours\b": "serve it from",
    r"\bby an entry that brokers keep\b": "publishes one internal marker entry",
}


def names_on(page):
    return set(re.findall(r"`([\w.]+)`", (DOCS / page).read_text()))


def test_each_option_is_on_the_page_of_options():
    assert {option.name for option in (*CONNECTION, *SOURCE, *SINK)} <= names_on("options.md")


def test_each_column_is_on_the_page_of_columns():
    assert METADATA_COLUMNS.keys() | written_types().keys() <= names_on("columns.md")


def test_each_error_code_is_on_the_page_of_errors():
    found = {member for _, member in inspect.getmembers(errors, inspect.isclass)}
    codes = {kind.code for kind in found if issubclass(kind, errors.PulsarError)}
    assert codes - {errors.PulsarError.code} <= names_on("errors.md")


def test_each_metric_is_on_the_page_of_monitoring():
    assert {PREFIX + metric.name for metric in METRICS} <= names_on("monitoring.md")


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_no_phrase_must_be_read_twice(page):
    text = " ".join(page.read_text().split())
    for pattern, better in UNCLEAR.items():
        found = re.search(f".{{0,40}}(?:{pattern}).{{0,20}}", text, re.IGNORECASE)
        assert found is None, f"{found[0]!r}: write {better!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_paths_of_a_machine(page):
    assert not re.search(r"/(?:root|home|work|Users)/", page.read_text())
