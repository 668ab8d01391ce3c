"""Fixtures for tests with a real broker: `cluster`, `admin`, `topic`, `broker_factory`.

Fixtures of other concerns live in `fixtures`; each file there is loaded by itself.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from integration.broker import Admin, StandaloneBroker
from integration.helpers.cluster import TEST_JVM, Cluster, choose_source
from pulsar_spark.ids import TopicName

# Servers of a session, of which each process would start its own.
_SHARED = ("two_clusters", "proxied_transactions", "secured")


def pytest_configure(config: pytest.Config) -> None:
    for file in sorted(Path(__file__).parent.glob("fixtures/[!_]*.py")):
        config.pluginmanager.import_plugin(f"integration.fixtures.{file.stem}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, files with the same servers share a process; a file is never split."""
    groups: dict[Path, str] = {}
    for item in items:
        shared = set(_SHARED).intersection(getattr(item, "fixturenames", ()))
        groups.setdefault(item.path, f"{item.path.parent.name}/{item.path.stem}")
        groups[item.path] = min(shared, default=groups[item.path])
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item.path]))


def pytest_collection_finish(session: pytest.Session) -> None:
    if getattr(session.config.option, "loadgroup", False):
        # The mark of a group has no effect in some pairs of versions: then all processes start all servers.
        assert all("@" in item.nodeid for item in session.items), "pytest-xdist does not group tests"


def pytest_report_header() -> str:
    return f"pulsar: {choose_source().description}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The Pulsar that all tests share, with the settings of conf/broker/standalone.conf."""
    with choose_source().open() as opened:
        yield opened


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    """Admin requests to the test's cluster."""
    return cluster.admin


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, of a topic that does not exist yet."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def namespace(admin: Admin, topic: str) -> str:
    """A namespace of the test's own, so that no other test's topics are seen."""
    name = f"public/{TopicName.parse(topic).local}"
    admin.create_namespace(name)
    return name


@pytest.fixture
def own_topic(namespace: str) -> str:
    """The name of a topic in that namespace, whose policies a test may change; it does not exist yet."""
    return f"persistent://{namespace}/topic"


class BrokerFactory(Protocol):
    def __call__(
        self, settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None
    ) -> StandaloneBroker: ...


@pytest.fixture
def broker_factory() -> Iterator[BrokerFactory]:
    """Start brokers of the test's own, to set, kill and start again; they end with the test."""
    with ExitStack() as stack:

        def start(
            settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None
        ) -> StandaloneBroker:
            return stack.enter_context(StandaloneBroker(settings, data_dir=data_dir, jvm=TEST_JVM))

        yield start
