"""A cluster of several brokers, shared by the tests that want one: the fixture `pulsar_cluster`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.broker.pulsar_cluster import PulsarCluster


@pytest.fixture(scope="session")
def pulsar_cluster() -> Iterator[PulsarCluster]:
    with PulsarCluster() as opened:
        yield opened
