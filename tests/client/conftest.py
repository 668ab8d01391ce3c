"""A fake broker and a client of it."""

import pytest

from tests.client.clients import TOPIC, client_of, numbered, singles
from tests.fake_broker import FakeBroker


@pytest.fixture
def broker():
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with client_of(broker) as client:
        yield client


@pytest.fixture
def topic(broker):
    return broker.create(TOPIC)


@pytest.fixture
def ids(broker, topic):
    """20 entries in two ledgers, each of one message that says its number."""
    first = broker.publish(TOPIC, *singles(numbered(12)))
    topic.roll()
    return first + broker.publish(TOPIC, *singles(numbered(8, 12)))
