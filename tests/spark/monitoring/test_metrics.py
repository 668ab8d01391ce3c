"""The metrics: their text, their names, and what dashboard, alerts and the documentation say of them."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from integration.docs import PAGES, ROOT
from pulsar_spark.spark.monitoring.driver_files import SinkTotals
from pulsar_spark.spark.monitoring.query_figures import BatchFigures, QueryFigures
from pulsar_spark.spark.monitoring.site import METRICS, PREFIX, Snapshot, prometheus_text
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport
from tests.loops import for_each

NAMES = {PREFIX + each.name for each in METRICS}
MONITORING = ROOT / "conf/monitoring"
UNITS = "rows|bytes_estimate|messages|bytes|possible_duplicates|data_losses|retries|failed_runs"


def snapshot(name="q", topic="t"):
    partitions = (PartitionBacklog(topic, "0", "1:1", 10, 10, 1000, 2000, "(1:0, 2:-1]"),)
    source = SourceReport("1-a", "s", 0, 2500, partitions, 50, 1, 2)
    batch = BatchFigures(3, 4500, 2.0, 100, 50.0, (source,), SinkTotals(5, 50, 7, 1))
    return Snapshot(5000, (QueryFigures(name, "run").after(batch),), {name: 2})


def labels_of(metric):
    """The names of a metric's labels, the same in each sample."""
    (names,) = {tuple(labels) for labels, _ in metric.samples(snapshot())}
    return list(names)


def test_each_metric_has_a_help_a_type_and_samples_with_its_labels():
    text = prometheus_text(snapshot())
    for metric in METRICS:
        name = PREFIX + metric.name
        assert text.count(f"# HELP {name} {metric.text}\n# TYPE {name} {metric.kind}\n{name}{{") == 1
        for line in re.findall(rf"^{name}{{(.*)}} .*$", text, re.MULTILINE):
            assert re.findall(r'(\w+)="', line) == labels_of(metric)
    assert prometheus_text(Snapshot(0, (), {})) == ""


def test_partitions_that_may_have_lost_messages_are_counted():
    name = f'{PREFIX}possible_loss_partitions{{query="q"}}'
    assert f"{name} 1\n" in prometheus_text(snapshot())


def test_names_have_units():
    for metric in METRICS:
        ending = (
            rf"({UNITS})_total|_seconds|_per_second|backlog_entries|messages_estimate|batch_id|partitions"
        )
        assert re.search(f"({ending})$", metric.name), metric.name
        assert metric.text.endswith(".")
    assert len(NAMES) == len(METRICS)


@given(st.text(), st.text())
def test_names_of_others_stay_within_their_quotes(name, topic):
    text = prometheus_text(snapshot(name, topic))
    value = r'"(?:[^"\\\n]|\\[\\n"])*"'
    label = rf"\w+={value}"
    for line in text.split("\n")[:-1]:
        assert re.fullmatch(rf"# .*|\w+{{{label}(?:,{label})*}} -?[\d.]+(e[+-]?\d+)?", line, re.DOTALL), line
    found = re.search(rf"^pulsar_spark_batch_id{{query=({value})}}", text, re.MULTILINE)
    unescaped = re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else each[1], found[1][1:-1])
    assert unescaped == name


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb", "\udc00\ud800"])
def test_half_a_character_hides_nothing(name):
    """Java's texts can hold one, and UTF-8 cannot."""
    text = prometheus_text(snapshot(name, name)).encode().decode()
    assert text.count("pulsar_spark_batch_id{") == 1
    assert f'query="{ascii(name)[1:-1]}"'.replace("\\", "\\\\") in text


def test_the_documentation_names_each_metric():
    page = (ROOT / "docs/monitoring.md").read_text()
    rows = re.findall(r"^\| `pulsar_spark_.*$", page, re.MULTILINE)
    labels = [", ".join(f"`{name}`" for name in labels_of(each)) for each in METRICS]
    expected = [
        f"| `{PREFIX}{each.name}` | {each.kind} | {named} | {each.text} |"
        for each, named in zip(METRICS, labels, strict=True)
    ]
    assert rows == expected
    assert set(re.findall(r"\bpulsar_spark_\w+", page)) <= NAMES


def test_other_pages_name_metrics_that_exist():
    for page in PAGES:
        if page.name != "CHANGELOG.md":  # it may name what was before
            named = re.findall(r"\bpulsar_spark_\w+_(?:total|seconds|estimate|entries)\b", page.read_text())
            assert set(named) <= NAMES, page.name


def expressions():
    """The expressions of the dashboard and of the alert rules, by their place."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield f"dashboard: {panel['title']}", target["expr"]
    rules = (MONITORING / "prometheus-alerts.yaml").read_text()
    for alert, expression in re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", rules):
        yield f"alert: {alert}", expression


def test_dashboard_and_alerts_use_metrics_that_exist():
    found = dict(expressions())
    assert len([place for place in found if place.startswith("alert")]) >= 6
    used = {name for expression in found.values() for name in re.findall(r"\bpulsar_spark_\w+", expression)}
    assert used <= NAMES
    for name in ("backlog_messages_estimate", "last_progress_timestamp_seconds", "data_losses_total"):
        assert PREFIX + name in used


@for_each(("place", "expression"), list(expressions()))
def test_counters_are_looked_at_by_their_growth(place, expression):
    for name in re.findall(r"\bpulsar_spark_\w+_total\b", expression):
        assert re.search(rf"(rate|increase)\({name}[{{\[]", expression), place


def test_the_alert_rules_are_what_prometheus_takes():
    (group,) = yaml.safe_load((MONITORING / "prometheus-alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule["for"])
