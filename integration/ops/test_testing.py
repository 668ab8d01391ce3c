"""A user's test of a query, run as a user does."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from integration.deploy.environments import build_wheel, link, linked
from integration.docs import ROOT
from integration.helpers.cluster import docker_answers
from pulsar_spark.testing import PulsarForTests

EXAMPLES = ROOT / "examples"
_PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


# A conftest.py beside the example, where no Docker engine answers: testcontainers gets what the example says
# to it, and starts a broker from the jars.
NO_ENGINE = """
from testcontainers.core import container

from pulsar_spark_broker.standalone import StandaloneBroker


class WithoutEngine(container.DockerContainer):
    def start(self):
        settings = {name.removeprefix("PULSAR_PREFIX_"): value for name, value in self.env.items()}
        settings.pop("PULSAR_MEM")
        broker, web = map(str, self.ports.values())
        self.broker = StandaloneBroker(settings | {"brokerServicePort": broker, "webServicePort": web})
        self.broker.start()
        self._wait_strategy.wait_until_ready(self)
        return self

    def stop(self, *_, **__):
        self.broker.close()

    def get_container_host_ip(self):
        return "127.0.0.1"

    def get_exposed_port(self, port):
        return self.ports[str(port)]


container.DockerClient = lambda: None
container.DockerContainer = WithoutEngine
"""


def run_example(python, folder, variables, name="test_totals.py"):
    """Run it as a user's own file."""
    shutil.copy(EXAMPLES / name, folder)
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", name]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.long
def test_the_example_with_a_broker_that_runs(cluster, tmp_path):
    places = {
        "PULSAR_SPARK_TEST_SERVICE_URL": cluster.service_url,
        "PULSAR_SPARK_TEST_ADMIN_URL": cluster.admin_url,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
    }
    run_example(sys.executable, tmp_path, {**os.environ, **places})


@pytest.mark.long
def test_the_example_in_a_container(tmp_path):
    """Where no engine answers the example runs all the same, but does not start Pulsar's image."""
    if not docker_answers():
        (tmp_path / "conftest.py").write_text(NO_ENGINE)
    variables = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    run_example(sys.executable, tmp_path, variables, "test_in_container.py")


@pytest.mark.long
def test_the_example_from_the_wheel(tmp_path):
    """It starts a broker of its own, and no variable says which Python Spark runs."""
    environment = linked(tmp_path / "environment")
    for name in ("protobuf", *_PYTEST):
        link(name, environment.site)
    with zipfile.ZipFile(build_wheel(tmp_path / "wheel")) as wheel:
        wheel.extractall(environment.site)
    others = ("PULSAR_SPARK_TEST", "PYSPARK_", "PYTEST")
    variables = environment.variables().items()
    run_example(
        str(environment.python),
        tmp_path,
        {name: value for name, value in variables if not name.startswith(others)},
    )


@pytest.fixture
def other(cluster, spark):
    return PulsarForTests(cluster.service_url, cluster.admin_url)


def test_partitions_schemas_and_order(other):
    topic = other.new_topic()
    rows = [(number, f"item {number}") for number in range(50)]
    other.send(topic, rows, "id long, item string", valueFormat="columns")
    read = other.read_all(topic, valueFormat="columns", metadataColumns="")
    assert [tuple(row) for row in read] == rows
    divided = other.new_topic(partitions=2)
    other.send(divided, [(f"k{number}", "v") for number in range(20)])
    assert {row["__topic"] for row in other.read_all(divided)} == {
        f"{divided}-partition-{number}" for number in range(2)
    }
