"""Which Pulsar the tests run against: a cluster that is there already, a container, or the jars.

The first that is available is taken, so every test runs on every machine:

1. the one that PULSAR_SPARK_TEST_SERVICE_URL and PULSAR_SPARK_TEST_ADMIN_URL name;
2. the official image, where a Docker engine answers;
3. a standalone broker from the published jars.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from testcontainers.core.container import DockerContainer

from integration.broker.admin import Admin
from integration.broker.standalone import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.helpers.proxy import Proxy
from pulsar_spark_broker.jars import pulsar_version
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.process import TEST_JVM as TEST_JVM
from pulsar_spark_broker.standalone import default_settings

# Short ledgers; those that nobody holds are trimmed.
SHORT_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    # What a subscription that was moved does not hold any more goes when its position is stored.
    "managedLedgerCursorPositionFlushSeconds": "1",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running Pulsar."""

    service_url: str
    admin_url: str

    @property
    def direct_url(self) -> str:
        """The service URL past the proxy, if there is one."""
        return self.service_url

    @property
    def admin(self) -> Admin:
        return Admin(self.admin_url)


@dataclass(frozen=True, slots=True)
class Source:
    """One way to get a cluster; `open` starts it where it has to be started, and stops it again."""

    description: str
    open: Callable[[], AbstractContextManager[Cluster]]


@functools.cache
def choose_source() -> Source:
    """Return the first source that is available; nothing is started yet."""
    service_url = os.environ.get("PULSAR_SPARK_TEST_SERVICE_URL")
    admin_url = os.environ.get("PULSAR_SPARK_TEST_ADMIN_URL")
    if service_url and admin_url:
        existing = Cluster(service_url, admin_url)
        version = existing.admin.version()
        return Source(f"{version}, running at {service_url}", lambda: _existing(existing))
    if service_url or admin_url:
        raise ValueError("set both PULSAR_SPARK_TEST_SERVICE_URL and PULSAR_SPARK_TEST_ADMIN_URL, or neither")
    version = pulsar_version()
    if docker_answers():
        return Source(f"{version}, the official image in Docker", lambda: _container(version))
    return Source(f"{version}, standalone from the published jars", _from_jars)


@dataclass(frozen=True, slots=True)
class ProxiedBroker(Cluster):
    """A broker and the proxy in front of it, which `service_url` names."""

    broker: StandaloneBroker
    proxy: Proxy

    @property
    def direct_url(self) -> str:
        return self.broker.service_url

    def settle(self) -> None:
        """Let everything pass again, and wait until clients have closed their connections."""
        self.proxy.resume()
        wait_until(lambda: self.proxy.open_connections == 0)


@contextmanager
def open_proxied_broker(settings: Mapping[str, str] | None = None) -> Iterator[ProxiedBroker]:
    """Start a broker whose lookups name a proxy: a client that came through the proxy stays behind it.

    The broker listens twice. What it does within itself goes by its own port; the proxy forwards to the
    second, and whoever comes in there is told the proxy's address as that of the broker.
    """
    own, behind_proxy = free_port(), free_port()
    with Proxy(f"pulsar://127.0.0.1:{behind_proxy}") as proxy:
        listeners = {
            "brokerServicePort": str(own),
            "bindAddresses": f"proxied:pulsar://127.0.0.1:{behind_proxy}",
            "advertisedListeners": f"own:pulsar://127.0.0.1:{own},proxied:{proxy.service_url}",
            "internalListenerName": "own",
        }
        with StandaloneBroker({**(settings or {}), **listeners}, jvm=TEST_JVM) as broker:
            yield ProxiedBroker(proxy.service_url, broker.admin_url, broker, proxy)


@contextmanager
def _existing(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster


@contextmanager
def _from_jars() -> Iterator[Cluster]:
    with StandaloneBroker(jvm=TEST_JVM) as broker:
        yield Cluster(broker.service_url, broker.admin_url)


@contextmanager
def _container(version: str) -> Iterator[Cluster]:
    # The same port numbers inside and outside, so that the address the broker advertises is right in both.
    broker_port, web_port = free_port(), free_port()
    settings = default_settings() | {
        "bindAddress": "0.0.0.0",
        "brokerServicePort": str(broker_port),
        "webServicePort": str(web_port),
    }
    container = DockerContainer(f"apachepulsar/pulsar:{version}")
    for port in (broker_port, web_port):
        container.with_bind_ports(port, port)
    container.with_envs(**{f"PULSAR_PREFIX_{name}": value for name, value in settings.items()})
    container.with_env("PULSAR_MEM", "-Xmx512m -XX:MaxDirectMemorySize=512m")
    start = "bin/apply-config-from-env.py conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"
    with container.with_command(["sh", "-c", start]):
        host = container.get_container_host_ip()
        cluster = Cluster(f"pulsar://{host}:{broker_port}", f"http://{host}:{web_port}")
        wait_until(cluster.admin.healthy, interval=0.2)
        yield cluster


def docker_answers() -> bool:
    """Say whether testcontainers can reach a Docker engine."""
    # In a process of its own: the docker library leaks a socket, hence a warning, where no engine listens.
    ask = "from testcontainers.core.docker_client import DockerClient; DockerClient().client.ping()"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False).returncode == 0
