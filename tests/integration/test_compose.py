"""The Pulsar for those who have Docker: of the version that tests run on, at the ports of the examples."""

import re

from integration.docs import ROOT
from pulsar_spark_broker.jars import pulsar_version

COMPOSE = (ROOT / "conf" / "compose.yaml").read_text()


def test_the_version_is_the_tested_one(monkeypatch):
    monkeypatch.delenv("PULSAR_SPARK_TEST_PULSAR", raising=False)
    assert re.findall(r"image: apachepulsar/pulsar:(\S+)", COMPOSE) == [pulsar_version()]


def test_it_listens_on_this_machine_only_at_the_usual_ports():
    ports = re.search(r"ports:\n((?: +- .*\n)+)", COMPOSE)[1]
    assert ports.split()[1::2] == ["127.0.0.1:6650:6650", "127.0.0.1:8080:8080"]
