"""Our client and the C++ client on the shared cluster: the fixtures `client`, `peer` and `leaves_nothing`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.broker.waiting import FAR_AWAY
from integration.chaos.leaks import nothing_left
from integration.cluster import Cluster
from integration.peer import Peer
from pulsar_spark.client import Client, ClientOptions


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """For `pytest.mark.usefixtures`: no thread, no file descriptor stays when the others have ended."""
    with nothing_left():
        yield


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """Our client; what fails at once must not wait for its operation timeout."""
    options = ClientOptions(service_url=cluster.service_url, operation_timeout=FAR_AWAY)
    with Client(options) as opened:
        yield opened


@pytest.fixture
def peer(cluster: Cluster) -> Iterator[Peer]:
    """The C++ client."""
    with Peer(cluster.service_url) as opened:
        yield opened
