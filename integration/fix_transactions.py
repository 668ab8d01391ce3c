"""A broker with transactions, shared by the test files that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.broker import StandaloneBroker
from integration.cluster import ProxiedBroker, open_proxied_broker
from integration.transactions import SETTINGS

# Short ledgers without retention, so that what is acknowledged is gone at once; small messages are chunked.
_BROKER = SETTINGS | {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "maxMessageSize": "10240",
}


@pytest.fixture(scope="session")
def proxied_transactions() -> Iterator[ProxiedBroker]:
    """The broker, and a proxy in front of it."""
    with open_proxied_broker(_BROKER) as pair:
        yield pair


@pytest.fixture(scope="session")
def transactional_broker(proxied_transactions: ProxiedBroker) -> StandaloneBroker:
    """The broker as it is reached past the proxy."""
    return proxied_transactions.broker
