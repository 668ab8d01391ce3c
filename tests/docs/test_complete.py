"""Every option, column, error code and metric is on its page; no page and no error must be read twice."""

import ast
import inspect
import re

import pulsar_spark
from integration.docs import PAGES, ROOT
from pulsar_spark import errors, testing
from pulsar_spark.spark.monitoring.site import METRICS, PREFIX
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE
from pulsar_spark.spark.rows.schema import METADATA_COLUMNS
from pulsar_spark.spark.rows.write import written_types

DOCS = ROOT / "docs"
CHECKED = [page for page in PAGES if page.name not in ("benchmarks.md", "CHANGELOG.md")]
MODULES = sorted((ROOT / "pulsar_spark").rglob("*.py"))

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
    r"\bha(?:s|ve) no use\b": "has no effect",
    r"\bgo(?:es)? together\b": "can be used together",
    r"\bwho knows\b": "where to find",
    r"\bmade again\b": "created again",
    r"\bcan(?:not)? be had\b|\bis (?:to be )?had\b": "can be reached, exists",
    r"\bnot to be found\b": "not found",
    r"\bstays? behind\b": "remains",
    r"\btells? more\b": "see",
    r"\bsays? where rows go\b|\bsaid where rows go\b": "the topic of the rows",
    r"\bthe (?:most|least) (?:messages|bytes|number)\b|\bthe longest that\b": "maximum, minimum",
    r"\b(?:it|which|that) is no (?!longer\b)": "is not a",
    r"\buntil the time was over\b": "until the timeout",
    r"\bforsaken\b": "unused",
}


def names_on(page):
    return set(re.findall(r"`([\w.]+)`", (DOCS / page).read_text()))


def test_each_public_name_is_in_the_reference():
    """Except errors, which have a page."""
    shown = set(re.findall(r":: pulsar_spark\.([\w.]+)", (DOCS / "api.md").read_text()))
    names = {name for name in pulsar_spark.__all__ if name != "__version__" and not hasattr(errors, name)}
    assert names | {f"testing.{name}" for name in testing.__all__} == shown


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


def test_no_phrase_must_be_read_twice():
    assert [found for page in CHECKED for found in unclear(page, page.read_text())] == []


def test_no_phrase_of_an_error_or_a_log_line_must_be_read_twice():
    assert [found for file in MODULES for found in unclear(file, " | ".join(texts_of(file)))] == []


def unclear(file, text):
    """The unclear phrases in a text, each with what to write."""
    text = " ".join(text.split())
    for pattern, better in UNCLEAR.items():
        for found in re.finditer(pattern, text, re.IGNORECASE):
            context = text[max(0, found.start() - 40) : found.end() + 20]
            yield f"{file.relative_to(ROOT)}: {context!r}: write {better!r}"


def texts_of(module):
    """The texts in a module except its docstrings; what an f-string shows is left out."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "...".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_one_spelling():
    """Docstrings and comments, too."""
    found = files_with(r"\blook-ups?\b", [*PAGES, *MODULES])
    assert found == [], "write 'lookup' (noun), 'look up' (verb)"


def test_no_paths_of_a_machine():
    assert files_with(r"/(?:root|home|work|Users)/", PAGES) == []


def files_with(pattern, files):
    found = [file for file in files if re.search(pattern, file.read_text(), re.IGNORECASE)]
    return [str(file.relative_to(ROOT)) for file in found]
