"""The alert rules, the dashboard and the metrics, with Prometheus's own tool."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from integration.helpers.made_up_progress import progress
from pulsar_spark import PulsarProgressListener

CONF = Path(__file__).resolve().parents[2] / "conf" / "monitoring"
ALERTS_FIRE = Path(__file__).with_name("alerts_fire.yaml")

# What Grafana puts in the place of its variables.
VARIABLES = {"$__range": "1h", "$query": ".*"}


pytestmark = pytest.mark.long


@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    assert found, "there is no promtool here: install your distribution's package, such as prometheus"
    return found


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr


def test_each_alert_fires_when_it_must(promtool, tmp_path):
    shutil.copy(CONF / "prometheus-alerts.yaml", tmp_path)
    shutil.copy(ALERTS_FIRE, tmp_path)
    run(promtool, "test", "rules", str(tmp_path / ALERTS_FIRE.name))


def test_prometheus_reads_each_expression_of_the_dashboard(promtool, tmp_path):
    dashboard = json.loads((CONF / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 10
    for name, value in VARIABLES.items():
        expressions = [each.replace(name, value) for each in expressions]
    rules = [{"record": f"panel_{number}", "expr": each} for number, each in enumerate(expressions)]
    file = tmp_path / "dashboard.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    run(promtool, "check", "rules", str(file))


def test_prometheus_reads_the_metrics(promtool):
    listener = PulsarProgressListener()
    hostile = '"}\n\\ x'
    topic = "persistent://public/default/topic"
    listener.onQueryProgress(
        progress(hostile, topic, 1, waiting=[7], rows=5, seconds=2.0, end_ms=1795258800000)
    )
    run(promtool, "check", "metrics", text=listener.prometheus_text())
