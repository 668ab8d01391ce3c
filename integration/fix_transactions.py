"""A broker with transactions, shared by the test files that need one: the fixture `transactional_broker`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.broker import StandaloneBroker
from integration.cluster import TEST_JVM
from integration.transactions import SETTINGS

# Short ledgers without retention, so that what is acknowledged is gone at once; small messages are chunked.
_BROKER = SETTINGS | {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "maxMessageSize": "10240",
}


@pytest.fixture(scope="session")
def transactional_broker() -> Iterator[StandaloneBroker]:
    with StandaloneBroker(_BROKER, jvm=TEST_JVM) as opened:
        yield opened
