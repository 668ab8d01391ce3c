"""A fake broker and a client of it."""

import pytest

from tests.client.clients import client_of
from tests.fake_broker import FakeBroker


@pytest.fixture
def broker():
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with client_of(broker) as client:
        yield client
