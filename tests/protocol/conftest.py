"""Connections at their beginning and after their handshake."""

import pytest

from tests.protocol.connections import connected_frame, new_connection, sent


@pytest.fixture
def fresh():
    """A connection that has not heard from the broker yet."""
    return new_connection()


@pytest.fixture
def ready():
    """A connection after its handshake, at time 0."""
    connection = new_connection()
    connection.receive(connected_frame(), 0)
    sent(connection)
    return connection
