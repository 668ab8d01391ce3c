"""A test with Pulsar's image in Docker: ``pip install testcontainers``, then ``python3 -m pytest FILE``."""

from collections.abc import Iterator

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

from pulsar_spark.testing import PulsarForTests

# The same outside as inside, because a broker tells its clients its port.
BROKER, WEB = 6650, 8080
START = "bin/apply-config-from-env.py conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"


@pytest.fixture(scope="session")
def pulsar() -> Iterator[PulsarForTests]:
    """A Pulsar for all tests of a run."""
    container = DockerContainer("apachepulsar/pulsar:4.2.4").with_command(["sh", "-c", START])
    container.with_env("PULSAR_MEM", "-Xmx512m").with_env("PULSAR_PREFIX_advertisedAddress", "localhost")
    container.with_bind_ports(BROKER, BROKER).with_bind_ports(WEB, WEB)
    with container.waiting_for(HttpWaitStrategy(WEB, "/admin/v2/brokers/health")):
        yield PulsarForTests(f"pulsar://localhost:{BROKER}", f"http://localhost:{WEB}")


def test_keys_are_kept(pulsar: PulsarForTests) -> None:
    """Your own test, with any query."""
    orders = pulsar.new_topic()
    pulsar.send(orders, [("ann", "tea"), ("bob", "milk")])
    assert sorted(bytes(row["__key"]) for row in pulsar.read_all(orders)) == [b"ann", b"bob"]
