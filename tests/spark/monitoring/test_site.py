"""The site: its paths, and that it is self-contained."""

import json
import re
from base64 import b64encode
from hashlib import sha256

from pulsar_spark.spark.monitoring.query_figures import QueryFigures
from pulsar_spark.spark.monitoring.site import (
    MAX_PARTITIONS,
    PAGE,
    SCRIPT,
    STYLE,
    Snapshot,
    answer,
    page_data,
    prometheus_text,
)
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport
from tests.spark.monitoring.test_metrics import snapshot

HOSTILE = '</script><img src=x onerror="document.title=1">'


def test_what_is_at_which_path():
    shown = snapshot()
    assert answer("/metrics", shown).body.decode() == prometheus_text(shown)
    assert json.loads(answer("/queries.json", shown).body) == page_data(shown)
    assert answer("/", shown).content_type == "text/html; charset=utf-8"
    for path in ("/index.html", "/../metrics", "", "/metrics/"):
        assert answer(path, shown) is None


def test_half_a_character_in_a_name_hides_no_page():
    shown = snapshot("\ud800", "\udfff")
    for path in ("/", "/metrics", "/queries.json"):
        assert answer(path, shown).body


def test_the_page_is_the_same_whatever_is_shown_and_loads_nothing_from_elsewhere():
    page = answer("/", snapshot(HOSTILE, HOSTILE)).body.decode()
    assert page == answer("/", Snapshot(0, (), {})).body.decode()
    addresses = set(re.findall(r"https?://[^\s\"']+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of SVG, which nobody asks for"
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"data:,", "metrics", "queries.json"}
    assert (PAGE.count("STYLE"), PAGE.count("SCRIPT")) == (1, 1)


def test_the_script_never_makes_html_of_text():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function\(", SCRIPT)
    assert "</" not in SCRIPT
    assert "SCRIPT" not in STYLE


def test_the_policy_lets_nothing_else_run():
    found = answer("/", snapshot())
    policy = dict(
        part.strip().partition(" ")[::2] for part in found.headers["Content-Security-Policy"].split(";")
    )
    page = found.body.decode()
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert policy[directive] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"


def test_what_the_page_gets():
    (query,) = page_data(snapshot())["queries"]
    assert (query["name"], query["batch"], query["backlogEntries"]) == ("q", 3, 10)
    assert (query["backlogMessages"], query["bytesPerSecond"], query["retries"]) == (1000, 25.0, 3)
    assert query["batches"] == [[4500, 50.0, 2.0]]
    assert query["backlogs"] == [[2500, 10, 1000]]


def test_only_the_longest_of_many_partitions_are_listed():
    partitions = tuple(PartitionBacklog("t", str(each), "1:1", each, 0, None) for each in range(500))
    source = SourceReport("1-a", "s", 0, 1, partitions, None, 0, 0)
    (query,) = page_data(Snapshot(0, (QueryFigures("q", sources=(source,)),), {}))["queries"]
    assert query["partitionCount"] == 500
    assert [each["entries"] for each in query["partitions"]] == list(range(499, 499 - MAX_PARTITIONS, -1))
    assert query["backlogMessages"] is None
    assert query["batch"] is None
