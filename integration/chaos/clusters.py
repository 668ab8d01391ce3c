"""One of two clusters is killed with -9 while a query reads it, and the query continues on the other one.

Before the kill, replication stands still for a while, so that the query has read messages that have no copy.
The cluster returns later, and its last messages are copied then.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from integration.broker.two_clusters import TwoClusters
from integration.broker.waiting import wait_until
from integration.chaos.harness import batches, driver, producing, rows_by_topic
from integration.helpers.peer import Peer

_OPTIONS: list[dict[str, str]] = [{}, {"maxMessagesPerTrigger": "3000"}, {"minPartitions": "9"}]
_NOT_COPIED = "have not been copied to this cluster"
_MOVED = "the query moves from cluster 'a'"


class Turn(NamedTuple):
    """What came of one move.

    Attributes:
        messages: written to the first cluster.
        read_before: read there.
        read_uncopied: of these, without a copy when the cluster was killed.
        read_late: not copied by then, and read in the other cluster when they were.
        lost: of a micro-batch that did not finish, and told.
    """

    messages: int
    read_before: int
    read_uncopied: int
    read_late: int
    lost: int


def clusters(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Move ``times`` queries; the rows of the chaos table."""
    chance = random.Random(seed)
    yield "messages", "read before", "of these not copied", "read late", "lost, told"
    with TwoClusters() as pair, tempfile.TemporaryDirectory() as name:
        namespace = pair.create_namespace("chaos", deduplicationEnabled=True)
        for number in range(times):
            folder = Path(name) / str(number)
            folder.mkdir()
            yield tuple(move(pair, f"persistent://{namespace}/moved-{number}", folder, chance))


def move(pair: TwoClusters, topic: str, folder: Path, chance: random.Random) -> Turn:
    """Kill cluster a under a query, and continue on b; raises AssertionError where a promise is not kept."""
    pair.create_topic(topic, partitions=4)
    options = {"topic": topic, **chance.choice(_OPTIONS)}
    with driver(pair.a.service_url, folder, **options) as process:
        with producing(pair.a.service_url, topic) as producer:
            wait_until(lambda: process.wait_for(0) is not None or len(batches(folder)) > 2)
            assert process.wait_for(chance.uniform(0.0, 3.0)) is None, process.log_tail()
            pair.links["a"].stall()
            assert process.wait_for(chance.uniform(0.0, 3.0)) is None, process.log_tail()
        pair.a.kill()
    pair.links["a"].cut_all()
    pair.links["a"].resume()
    before = _rows(folder)
    copied = _copied(pair, topic)
    is_told = _continue(pair.b.service_url, folder, options)
    rows = _rows(folder)
    assert {number: rows[number] for number in copied} == dict.fromkeys(copied, 1)
    pair.a.start()
    pair.await_replicated("a", topic)
    written = _copied(pair, topic)
    assert sorted(written) == list(range(producer.written))
    _continue(pair.b.service_url, folder, options)
    rows = _rows(folder)
    lost = written.keys() - rows.keys()
    assert max(rows.values()) == 1
    assert rows.keys() <= written.keys()
    assert not lost or is_told, sorted(lost)
    read_before, late = before.keys() & rows.keys(), rows.keys() - before.keys() - copied.keys()
    return Turn(len(written), len(before), len(read_before - copied.keys()), len(late), len(lost))


def _continue(service_url: str, folder: Path, options: dict[str, str]) -> bool:
    """Read all that the cluster has; whether messages of an unfinished micro-batch were told as lost."""
    with driver(service_url, folder, "until-idle", **options) as process:
        if process.wait_for(180) == 0:
            assert _MOVED in process.log
            return False
        assert _NOT_COPIED in process.log, process.log_tail()
    with driver(service_url, folder, "until-idle", failOnDataLoss="false", **options) as process:
        assert process.wait_for(180) == 0, process.log_tail()
    return True


def _copied(pair: TwoClusters, topic: str) -> Counter[int]:
    """The numbers in cluster b."""
    with Peer(pair.b.service_url) as peer:
        found = Counter(int(record.value or b"") for record in peer.read_all(topic))
    assert not found or max(found.values()) == 1  # its namespace deduplicates
    return found


def _rows(folder: Path) -> Counter[int]:
    """The numbers that the query has read, in order in each partition."""
    by_topic = rows_by_topic(folder)
    assert all(numbers == sorted(numbers) for numbers in by_topic.values())
    return Counter(number for numbers in by_topic.values() for number in numbers)
