"""Finds the rows that earlier runs of a task have stored in segments that are now sealed.

A sealed segment accepts no producer, so its broker does not report the last id of the producer's name.
"""

from __future__ import annotations

from functools import partial
from weakref import WeakKeyDictionary

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.parallel import IN_PARALLEL, raise_error_of, run_all
from pulsar_spark.client.reading.stored_run import StoredRun, has_older_entries, read_stored_run
from pulsar_spark.client.writing.dedup import DedupTask, PartitionRun, TopicRun
from pulsar_spark.errors import AuthError, DeadlineError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.run_search import RunToFind
from pulsar_spark.protocol.replay.sealed_segments import SeenEpochs, has_gap, lacks_partitions, to_search
from pulsar_spark.protocol.replay.task_ids import IDS_PER_BATCH
from pulsar_spark.protocol.segments import HASHES, Segment, TopicLayout
from pulsar_spark.protocol.writing.stored_ids import foreign_writes

# Maximum bytes in flight while a sealed segment is read.
_WINDOW_BYTES = 1 << 20

_DELETED = "segments that they may be in were deleted"

# Replaces the unknown last sequence id. It is higher than all ids, so no entry counts as the last one.
_NO_LAST_ID = 1 << 63

# Epochs (versions of a topic's layout) that this process has seen, by the query's secret and topic.
_seen: WeakKeyDictionary[Client, dict[tuple[bytes, TopicName], SeenEpochs]] = WeakKeyDictionary()


def number_of(names: list[TopicName], segment: TopicName) -> int:
    """Returns the index of a segment, which is appended if it is new."""
    if segment not in names:
        names.append(segment)
    return names.index(segment)


def follow(dedup: DedupTask, topic: TopicName, epoch: int) -> None:
    """Records the epoch of the layout to whose segments the task writes from now on."""
    run = dedup.run_of(topic)
    if not run.rows:
        run.epoch = epoch
    seen = _seen.setdefault(dedup.client, {}).setdefault((dedup.secret, topic), SeenEpochs())
    run.since = seen.see(dedup.origin.batch, epoch)


def read_sealed(dedup: DedupTask, topic: TopicName, layout: TopicLayout) -> None:
    """Begins to read the messages that earlier runs have stored in sealed segments.

    Call it after ``read_stored`` of the active segments, and again when producers of other segments were
    opened. Segments that are proven to have no rows of the micro-batch are left out.

    Raises:
        SendError: another run of the task has written since this run has received its first row.
        DuplicatesError: the task is strict, and stored messages cannot be compared.
        BrokerError: the stored messages cannot be read.
    """
    run, deadline = dedup.run_of(topic), dedup.client.operation()
    if _since(run, layout) < 0:
        layout = _with_partitions(dedup.client, topic, layout)
    segments = layout.segments.values()
    is_first = dedup.origin.batch == 0  # then there is no earlier micro-batch
    since = -1 if is_first else _proven_since(dedup, run, layout, deadline)
    size = 1
    while left := _left(run, layout, since)[:size]:
        found = run_all([partial(_find, dedup, each, deadline, is_first=is_first) for each in left])
        take = partial(_take, dedup, topic, run)
        # Adds all found runs before an error is raised, so that the task closes their readers.
        taken = run_all([partial(take, *each) for each in zip(left, found, strict=True)], 1)
        raise_error_of([*found, *taken])
        since, size = max(since, _since(run, layout)), IN_PARALLEL
    if dedup.may_be_replay and not is_first and has_gap(segments, since):
        name, partition = next(iter(run.partitions.items()))
        partition.stored.unread = partition.stored.unread or _DELETED
        partition.claimed = IDS_PER_BATCH
        dedup.warn_unread(name, partition)
    for each in segments:
        of_segment = run.partitions.get(each.topic)
        is_new = each.created_at > run.epoch and of_segment is not None and not of_segment.has_sent
        if is_new and of_segment is not None and of_segment.begin is not None:
            raise foreign_writes(str(each.topic), dedup.name)


def _take(
    dedup: DedupTask, topic: TopicName, run: TopicRun, segment: TopicName, found: StoredRun | PulsarError
) -> None:
    if isinstance(found, StoredRun):
        number = number_of(run.names, segment)
        partition = PartitionRun(number, dedup.name, stored=found, claimed=IDS_PER_BATCH)
        dedup.take_stored(topic, segment, partition)


def _since(run: TopicRun, layout: TopicLayout) -> int:
    """Returns the newest epoch known to exist when an earlier micro-batch was written; -1: unknown."""
    older = (layout.segments.get(name) for name, each in run.partitions.items() if each.has_older)
    return max([run.since, *(each.created_at for each in older if each is not None)])


def _left(run: TopicRun, layout: TopicLayout, since: int) -> list[TopicName]:
    """Returns the segments that must be searched, the last sealed first."""
    found = to_search(layout.segments.values(), since)
    return [each.topic for each in found if each.topic not in run.partitions]


def _with_partitions(client: Client, topic: TopicName, layout: TopicLayout) -> TopicLayout:
    """Adds the former partitions of a topic that was made scalable, if they are not in the layout any more.

    Brokers soon remove these partitions from the layout, but do not delete them.
    """
    if not lacks_partitions(layout.segments.values()):
        return layout
    try:
        names = client.partitions(topic._replace(domain="persistent"))
    except (TopicNotFoundError, AuthError):
        return layout
    old = {name: Segment(name, True, 0, HASHES - 1, True, created_at=-1, sealed_at=0) for name in names}
    return layout._replace(segments={**old, **layout.segments})


def _proven_since(dedup: DedupTask, run: TopicRun, layout: TopicLayout, deadline: Deadline) -> int:
    """Returns ``_since``, or a newer epoch: of an active segment with entries of an earlier micro-batch."""
    since, segments, size = _since(run, layout), layout.segments.values(), 1
    active = sorted(layout.active, key=lambda each: each.created_at, reverse=True)
    while newer := [each for each in active[:size] if each.created_at > since]:
        is_needed = _left(run, layout, since) or (dedup.may_be_replay and has_gap(segments, since))
        if deadline.passed or not is_needed:
            break
        searches = [
            partial(has_older_entries, dedup.client, each.topic, dedup.secret, dedup.origin) for each in newer
        ]
        found = run_all(searches)
        if any(isinstance(each, AuthError) for each in found):
            break  # not raised, because the search of the sealed segments raises it
        raise_error_of(found)
        proven = [each.created_at for each, is_proven in zip(newer, found, strict=True) if is_proven]
        since, active, size = max([since, *proven]), active[size:], IN_PARALLEL
    return since


def _find(dedup: DedupTask, segment: TopicName, deadline: Deadline, *, is_first: bool) -> StoredRun:
    wanted = RunToFind(
        dedup.origin,
        dedup.secret,
        dedup.name,
        _NO_LAST_ID,
        is_claimed=not is_first,
        may_be_own=False,
        is_sealed=True,
    )
    try:
        if deadline.passed:
            raise deadline.error("too many segments were searched")
        return read_stored_run(dedup.client, segment, wanted, dedup.decryptor, _WINDOW_BYTES)
    except DeadlineError as error:
        return StoredRun(unread=error.what)
    except TopicNotFoundError:  # if ``is_first``, perhaps deleted before the query started
        return StoredRun(is_empty=True) if is_first else StoredRun(unread=_DELETED)
