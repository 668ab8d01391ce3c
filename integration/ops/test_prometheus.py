"""The alert rules, the dashboard and the metrics, with Prometheus itself and its own tool."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from integration.broker.waiting import wait_until
from integration.docs import ROOT, blocks
from integration.fixtures.spark import begun
from integration.helpers.made_up_progress import progress
from integration.helpers.peer import Record
from pulsar_spark import PulsarProgressListener
from pulsar_spark_broker.ports import free_port

PAGE = ROOT / "docs" / "monitoring.md"
CONF = ROOT / "conf" / "monitoring"
ALERTS_FIRE = Path(__file__).with_name("alerts_fire.yaml")

# What Grafana puts in the place of its variables.
VARIABLES = {"$__range": "1h", "$query": ".*"}


pytestmark = pytest.mark.long


def program(name):
    """The path of one of Prometheus's programs."""
    found = shutil.which(name)
    assert found, f"there is no {name} here: install your distribution's package, such as prometheus"
    return found


@pytest.fixture
def promtool():
    return program("promtool")


class Prometheus:
    """A Prometheus server with the configuration `prometheus.yaml` of a folder; a context manager."""

    def __init__(self, folder):
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        options = {
            "config.file": self._folder / "prometheus.yaml",
            "storage.tsdb.path": self._folder / "prometheus",
            "web.listen-address": self._address,
        }
        self._log = (self._folder / "prometheus.log").open("wb")
        command = [program("prometheus"), *(f"--{name}={value}" for name, value in options.items())]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._process.wait()
        self._log.close()

    def ask(self, path, **parameters):
        """The data of an answer of its API; None before it answers."""
        assert self._process.poll() is None, Path(self._log.name).read_text()
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def value(self, expression):
        """The only value of an expression; 0 where there is none yet."""
        found = self.ask("query", query=expression)
        result = found["result"] if found else []
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else 0.0


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


def test_prometheus_scrapes_a_query_as_the_page_says(
    pulsar_in_spark, peer, admin, topic, checkpoint, listener, tmp_path
):
    """All metrics of the page arrive, and no counter decreases from one micro-batch to the next."""
    (config,) = (block.text for block in blocks(PAGE, "text") if "scrape_configs:" in block.text)
    target = urllib.parse.urlsplit(listener.serve()).netloc
    config = config.replace("driver.example:4050", target).replace("interval: 10s", "interval: 1s")
    shutil.copy(CONF / "prometheus-alerts.yaml", tmp_path)
    (tmp_path / "prometheus.yaml").write_text(config)
    admin.create_topic(topic)
    rows = pulsar_in_spark.stream(topic, maxMessagesPerTrigger="100").drop("__topic")
    copy = pulsar_in_spark.write_stream(rows, checkpoint, f"{topic}-copy").queryName("scraped")
    with Prometheus(tmp_path) as prometheus:
        query = begun(copy)
        try:
            sent = 0
            while prometheus.value('changes(pulsar_spark_read_rows_total{query="scraped"}[1h])') < 5:
                peer.produce(topic, [Record(b"%d" % number) for number in range(sent, sent + 300)])
                sent += 300
                query.processAllAvailable()
            for name in ("read_rows", "written_messages"):
                series = f'pulsar_spark_{name}_total{{query="scraped"}}'
                wait_until(lambda series=series: prometheus.value(series) == sent)
            metrics = re.findall(r"^\| `(pulsar_spark_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
            for name, kind in metrics:
                assert prometheus.value(f"count({name})") > 0, name
                if kind == "counter":
                    assert prometheus.value(f"max(resets({name}[1h]))") == 0, name
            assert prometheus.value('min(min_over_time(up{job="spark"}[1h]))') == 1
        finally:
            query.stop()
        (group,) = prometheus.ask("rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
