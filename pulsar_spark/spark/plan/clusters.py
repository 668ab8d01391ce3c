"""Moves between clusters: Witnesses recognizes another cluster at a restart, Moves continues a query there.

A restart recognizes the cluster by the witness, an entry that the query has read.
The offsets contain the witness. The planner chooses entries that it has already received or probed, because
they cost no request. Otherwise a run without a witness probes up to three entries, and other runs probe one
entry an hour. Another cluster can continue the query only if it has a copy of the witness. So an entry
becomes the witness only after ``publishTimeMargin``, the time to copy it. A witness that is itself a copy
cannot prove a move to a new cluster, so the planner looks for another entry as if it had none.

    the topic has, at the witness's id or elsewhere    a restart
    the witness at its id                              continues
    another entry at the id; one copy elsewhere        moves the query to this cluster
    another entry at the id; no copy, or several       is refused
    no entry at the id; a copy elsewhere, and the      is refused, because any producer can write an entry
    query's subscription                               that seems to be a copy
    no entry at the id; a copy elsewhere, and no       moves the query to this cluster
    subscription
    no entry at the id; no copy                        is judged by the subscription

A query that has moved may only return to the cluster that it has left, even if its subscription exists there.
Any other move is refused.

A move is a micro-batch without rows, from the positions in the old cluster to the positions in the new one.
So each other micro-batch lies in one cluster, and its offsets alone define its messages. A micro-batch that
did not finish in the old cluster runs again first: it reads the copies of its entries. See
:mod:`pulsar_spark.protocol.reading.copies`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Generator, Mapping
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from itertools import islice, takewhile

from pulsar_spark.client import (
    PROMPT,
    Calls,
    Copied,
    CopiedPartition,
    CopyRange,
    EntryInfo,
    Kind,
    LastMessageId,
    LostRange,
    PlanningClient,
    Range,
    StoredEntry,
    Witness,
    position_of,
)
from pulsar_spark.errors import OtherClusterError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.loss_check import Checkpoint, LossCheck
from pulsar_spark.spark.plan.offsets import Left, Offsets
from pulsar_spark.spark.plan.partition import Partition
from pulsar_spark.spark.plan.ranges import plan_ranges
from pulsar_spark.spark.plan.resolve import run_for_each

_log = logging.getLogger(__name__)

# Maximum entries that a run probes to find a witness, if it has none.
_MAX_PROBES = 3
# Seconds without a candidate for the next witness, after which a run probes one entry as a candidate.
_RENEWED_AFTER = 3600.0
_MAX_SEARCHED = 10_000  # maximum entries that are read to find the source clusters of a topic's copies
_FIRST_READ = 16  # messages of a search's first read; each later read has twice as many
_READ_BYTES = 1 << 20  # maximum bytes of one read
_MAX_CLUSTERS = 8  # maximum clusters that are tried as the source of a copy

# Maximum partitions that a warning names.
_MAX_LISTED = 10

_MAY_BE = "it may be another cluster, whose message ids say nothing"
_GONE = "this cluster has no copy of a message up to there: retention has deleted it, or it was never copied"
_LATE = "the micro-batch did not finish, and these messages have not been copied to this cluster"


class MovedError(Exception):
    """The checkpoint is from another cluster, whose entries have copies here, so the planner moves the query.

    ``cluster``: name of the checkpoint's cluster; empty if unknown. ``before``: the query's last positions in
    this cluster, if the query last moved away from here; otherwise None.
    """

    def __init__(self, cluster: str, before: Left | None) -> None:
        self.cluster, self.before = cluster, before


class Witnesses:
    """Keeps the witness of one run of a query, the entry by which a restart recognizes the cluster."""

    def __init__(self, client: PlanningClient, calls: Calls[Partition], options: SourceOptions) -> None:
        self._client = client
        self._pending = calls[Kind.WITNESS]
        self._options = options
        self._margin_ms = round(1000 * options.publish_time_margin)
        self._probes_left = _MAX_PROBES
        self._probes_at = client.now() + _RENEWED_AFTER
        self._is_gone = False  # the checkpoint's witness was deleted; any other entry replaces it
        self._next: tuple[Witness, float] | None = None  # the next witness, and the time when it was found

    def at_start(self, positions: Mapping[TopicName, MessageId]) -> Witness | None:
        """Returns an entry before the start of a new query, as its first witness; None if there is none.

        Raises:
            BrokerError: the broker did not answer.
        """
        if not positions:
            return None
        topic = max(positions, key=lambda each: positions[each].is_entry)
        position: MessageId | None = positions[topic]
        if not positions[topic].is_entry and not isinstance(self._options.start.everywhere, PositionWord):
            position = self._client.first_after(topic, MessageId.EARLIEST)
        if position is None or not position.is_entry or position > positions[topic]:
            return None
        entry = self._client.entry_at(topic, position)
        return None if entry is None or entry.corrupt else Witness.of(topic, entry)

    def renewed(self, old: Witness | None, ends: Mapping[Partition, MessageId]) -> Witness | None:
        """Returns the witness of the next offsets: the previous one (``old``), or a newer entry.

        ``ends``: planned end of each partition that has new entries; a newer entry is not after it.
        """
        old = None if self._is_gone else old
        # A copied entry identifies a cluster less surely, because other clusters may have copies of it.
        is_weak = old is None or old.source is not None
        found = self._found(ends, is_weak=is_weak)
        if found is None:
            return old
        if old is None or (is_weak and found.source is None):
            self._is_gone, self._next = False, None
            return found
        now = self._client.now()
        if self._next is None:
            self._next = found, now
        elif now - self._next[1] >= self._options.publish_time_margin:
            old, self._next = self._next[0], (found, now)
        return old

    def _found(self, ends: Mapping[Partition, MessageId], *, is_weak: bool) -> Witness | None:
        """Returns an entry for the next witness, or None. ``is_weak``: the old one is a copy or missing."""
        now = self._client.now()
        for partition, end in ends.items():
            entry = _at_hand(partition, end)
            if entry is not None and (is_weak or entry.source is None):
                self._probes_at = now + _RENEWED_AFTER
                return Witness.of(partition.topic, entry)
        if not is_weak:
            if now < self._probes_at:
                return None
            self._probes_left, self._probes_at = 1, now + _RENEWED_AFTER
        # Probes one entry at most, and does not wait for a slow broker.
        news = {each: end for each, end in ends.items() if each.position != end and end.is_entry}
        calls = {}
        if news and self._probes_left and not self._pending.busy:
            self._probes_left -= 1
            partition, end = next(iter(news.items()))
            calls[partition] = partial(self._client.entry_at, partition.topic, end)
        for partition, answer in self._pending.run(calls, PROMPT).items():
            entry = answer if isinstance(answer, EntryInfo) and not answer.corrupt else None
            if entry is not None and (is_weak or entry.source is None) and not partition.is_closed:
                return Witness.of(partition.topic, entry)
        return None

    def check(self, checkpoint: Offsets, partitions: Container[TopicName]) -> None:
        """Probes this cluster for the checkpoint's witness, the entry that identifies a cluster, or its copy.

        A witness of a partition that is not in ``partitions`` is not checked.

        Raises:
            MovedError: this is another cluster, which has a copy of the witness.
            OtherClusterError: this may be another cluster, and the query's position in it is unknown.
            BrokerError: the broker did not answer.
        """
        witness, name = checkpoint.witness, checkpoint.subscription
        self._is_gone, self._next = witness is not None, None
        if witness is None or witness.topic not in partitions:
            return
        try:
            found = self._client.entry_at(witness.topic, witness.id)
            if found is not None and found.corrupt:
                return
            self._is_gone = found is None
            if witness.is_at(found):
                return
            clusters, before = self._copied_from(witness), self._if_returned(checkpoint.left)
            is_original = self._is_original_here(witness)
            if before is not None and is_original:
                clusters = [""]  # one cluster, of unknown name: its witness is a copy of an entry here
            is_held = self._is_gone and bool(clusters) and self._client.has_subscription(witness.topic, name)
            is_other = not self._is_gone or bool(clusters) or is_original
        except TopicNotFoundError:
            return
        except PulsarError as error:
            raise error.located(str(witness.topic)) from error
        is_known = checkpoint.left is before  # after a move, a query may only return to the cluster it left
        if len(clusters) == 1 and is_known and not self._client.read_compacted:
            if before is not None or not is_held:
                raise MovedError(clusters[0], before)
            raise OtherClusterError(
                f"the message that this query has read is not there any more, and a copy of it from cluster "
                f"{clusters[0]!r} is, but also the query's subscription {name}",
                topic=str(witness.topic),
                message_id=str(witness.id),
                advice="If the checkpoint is of that cluster, remove the subscription here, and start again: "
                "the query then moves. If it is not, somebody has written a message that seems to be a copy",
            )
        if is_other:
            raise self._error(witness)

    def _if_returned(self, left: Left | None) -> Left | None:
        """Returns ``left`` if it is this cluster, that is, its witness is stored here; otherwise None."""
        old = None if left is None else left.witness
        return left if old is not None and old.is_at(self._client.entry_at(old.topic, old.id)) else None

    def _is_original_here(self, witness: Witness) -> bool:
        """Whether the witness is a copy of an entry that was published in this cluster."""
        place = None if witness.source is None else witness.source.position
        found = None if place is None else self._client.entry_at(witness.topic, place)
        return found is not None and found.source is None and found.publish_time == witness.publish_time

    def _copied_from(self, witness: Witness) -> list[str]:
        """Returns the source clusters of the topic's entries that seem to be copies of the witness.

        Candidates are the source clusters of copies that were published at about the witness's time.
        """
        topic, time_ms = witness.topic, witness.publish_time
        if witness.source is not None or topic.is_segment:
            return []
        begin, last = self._client.bounds(topic)
        first = None
        if begin < last:
            first = self._client.first_at(topic, time_ms, self._margin_ms, begin.next_entry, last)
        if first is None:
            return []
        with closing(_read(self._client, topic, last, first.previous)) as entries:
            near = takewhile(lambda each: each.publish_time <= time_ms + self._margin_ms, entries)
            found = islice(near, _MAX_SEARCHED)
            names = dict.fromkeys(each.source.cluster for each in found if each.source is not None)
        here = {each: copied_partition(self._client, topic, each) for each in islice(names, _MAX_CLUSTERS)}
        copies = {name: each.around(witness.id).last_read for name, each in here.items()}
        return [name for name, entry in copies.items() if witness.is_copied_to(entry)]

    def why_unsure(
        self,
        witness: Witness | None,
        processed: Mapping[TopicName, MessageId],
        missing: Container[TopicName],
        answers: Mapping[TopicName, LastMessageId],
    ) -> str:
        """Returns a reason to suspect another cluster, which :meth:`check` could not prove; empty for none.

        Args:
            missing: partitions that lacked the subscription before it was opened there.
            answers: the broker's answers when the subscription was opened.
        """
        if witness is None:  # all partitions were empty, so compare their positions (ledger, -1)
            named = self._options.start.named
            known = {
                topic: each
                for topic, each in processed.items()
                if not each.is_entry and each != named.get(topic)
            }
        else:
            known = {witness.topic: witness.id} if self._is_gone else {}
        for topic, position in known.items():
            if topic not in answers or (topic not in missing and answers[topic].mark_delete >= position):
                continue
            if position.is_entry:
                what = f"{position} of {topic}, which this query has read"
                return f"the broker has neither {what}, nor a subscription that stands after it: {_MAY_BE}"
            if answers[topic].last.is_entry and self._client.bounds(topic).begin < position:
                what = f"messages before {position} of {topic}, where this query began"
                return f"the broker has {what}, and no subscription that stands there: {_MAY_BE}"
        return ""

    def _error(self, witness: Witness) -> OtherClusterError:
        start = iso_time(witness.publish_time - self._margin_ms)
        return OtherClusterError(
            "the checkpoint is of another cluster, and no copy of a message here says where it continues",
            topic=str(witness.topic),
            message_id=str(witness.id),
            advice="Continue on the cluster that the checkpoint is of. Or start the query here with a new "
            f"checkpointLocation and startingTime={start}: it reads some messages again, and none is left "
            "out if replication lagged less than publishTimeMargin. See docs/clusters.md",
        )


def copied_partition(client: PlanningClient, topic: TopicName, cluster: str) -> CopiedPartition:
    """Returns an object that finds, in this cluster's ``topic``, the copies of entries of ``cluster``."""
    begin, last = client.bounds(topic)
    return CopiedPartition(partial(_read, client, topic, last), cluster, begin, last)


def _read(
    client: PlanningClient, topic: TopicName, last: MessageId, after: MessageId
) -> Generator[EntryInfo, None, None]:
    """Yields the entries after a position, without corrupt entries."""
    messages = _FIRST_READ
    with closing(client.probe_entries(topic, after)) as probe:
        while entries := probe.read(messages, _READ_BYTES, last):
            yield from (each for each in entries if not each.corrupt)
            messages *= 2


def iso_time(time_ms: int) -> str:
    """Formats a publish time as options accept it."""
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")


def _at_hand(partition: Partition, end: MessageId) -> StoredEntry | None:
    """Returns the last entry up to ``end`` that the planner has received or probed; None if there is none."""
    probed = [] if partition.known is None else partition.known.entries
    known: list[StoredEntry] = [each for each in probed if not each.corrupt]
    if partition.tail is not None and partition.tail.last is not None:
        known.append(partition.tail.last)
    return max((each for each in known if each.id <= end), key=lambda each: each.id, default=None)


class Moves:
    """Moves a query from its checkpoint's cluster to this one, and reports messages without copies here."""

    def __init__(self, client: PlanningClient, options: SourceOptions, loss_check: LossCheck) -> None:
        self._client = client
        self._options = options
        self._margin_ms = round(1000 * options.publish_time_margin)
        self._loss_check = loss_check

    def moved(self, start: Offsets, error: MovedError, existing: Collection[TopicName]) -> Offsets:
        """Returns the offset to continue from in this cluster; ``start``: last offset in the old cluster.

        A query that was in this cluster before continues where it left, because later entries may have had
        no copies in the other cluster.

        Raises:
            DataLossError: copies of unread messages may be gone.
            BrokerError: the broker did not answer.
        """
        left = {topic: each for topic, each in start.positions.items() if topic in existing}
        for topic in sorted(start.positions.keys() - left.keys()):
            Checkpoint.finished(start).report_absent(self._loss_check, topic)
        self._loss_check.has_moved, cluster, here = True, error.cluster, error.before
        now = Left(cluster, self._now_ms(), left, start.witness)
        if here is not None:
            _log.warning(
                "the query returns from cluster %r to cluster %r, and continues where it left that. Messages "
                "of %r since then are read again if they had been copied%s",
                *(cluster, here.cluster, here.cluster, "" if cluster else ", and those of the other cluster"),
            )
            back = {topic: each for topic, each in here.positions.items() if topic in left}
            return Offsets(start.subscription, back, here.witness, now)
        calls = {topic: partial(self._search, cluster, topic, each) for topic, each in left.items()}
        positions, told, witness = {}, [], None
        for topic, (begin, copied, newest) in run_for_each(calls).items():
            self._require_copies(topic, copied, left[topic])
            positions[topic] = begin
            told.append(f"{topic}: {_told(newest.last_read)}")
            if witness is None and copied.last_read is not None:
                witness = Witness.of(topic, copied.last_read)
        more = f"; and {len(told) - _MAX_LISTED} more" if len(told) > _MAX_LISTED else ""
        _log.warning(
            "the query moves from cluster %r to the one of %s. The last message of %r that has been copied "
            "there: %s%s. Messages after it are read when they arrive. Messages of all other clusters are "
            "read again if they were published at most %g s before the last copy that the query had read, "
            "or later, or if there is no such copy; if some took longer to reach %r, they may be left out: "
            "set publishTimeMargin",
            *(cluster, self._options.client.service_url, cluster, "; ".join(sorted(told)[:_MAX_LISTED])),
            *(more, self._options.publish_time_margin, cluster),
        )
        return Offsets(start.subscription, positions, witness, now)

    def replay(
        self, start: Offsets, end: Offsets, error: MovedError, existing: Collection[TopicName]
    ) -> list[Range]:
        """Returns the ranges of copies of a micro-batch that did not finish in another cluster.

        Raises:
            OtherClusterError: it is the query's first micro-batch.
            DataLossError: messages of the micro-batch were not copied, or their copies are gone.
        """
        cluster = error.cluster
        if not cluster:
            raise OtherClusterError("a micro-batch did not finish on another cluster, whose name is unknown")
        if start.subscription != end.subscription:
            raise OtherClusterError(
                f"the checkpoint is of cluster {cluster!r}, where the first micro-batch did not finish",
                advice="Nothing is processed: start the query with a new checkpointLocation",
            )
        asked = plan_ranges(start, end, dict.fromkeys(end.positions, MessageId.EARLIEST))
        for each in asked:
            if each.topic not in existing:
                Checkpoint.unfinished(start, end).report_absent(self._loss_check, each.topic)
        asked, ranges = [each for each in asked if each.topic in existing], []
        # The first fields of a range are topic, start and end.
        found = run_for_each({each.topic: partial(self._search, cluster, *each[:3]) for each in asked})
        back = {} if error.before is None else error.before.positions
        for each in asked:
            begin, before, after = found[each.topic]
            last = after.last_read
            if error.before is None:
                self._require_copies(each.topic, before, each.start)
            if not after.has_arrived(each.end):
                copied = max(each.start, position_of(last) or each.start)
                self._loss_check.reporter.lost(each.topic, LostRange(copied, each.end, _LATE))
            begin = max(begin, back.get(each.topic, begin))
            if last is not None and last.id > begin:
                copies = CopyRange(cluster, each.start, self._now_ms(), each.end)
                ranges.append(Range(each.topic, begin, last.id, copies=copies))
        _log.warning(
            "a micro-batch that did not finish on cluster %r runs again, on copies of its messages", cluster
        )
        return ranges

    def _now_ms(self) -> int:
        return self._client.time_ms() + self._margin_ms

    def _require_copies(self, topic: TopicName, copied: Copied, position: MessageId) -> None:
        if not copied.is_complete(position):
            self._loss_check.reporter.lost(topic, LostRange(position, None, _GONE))

    def _search(
        self, cluster: str, topic: TopicName, start: MessageId, end: MessageId = MessageId.LATEST
    ) -> tuple[MessageId, Copied, Copied]:
        """Returns the position to continue from here, and the copies next to ``start`` and to ``end``."""
        here = copied_partition(self._client, topic, cluster)
        before = here.around(start)
        return here.start_after(before, self._margin_ms), before, here.around(end)


def _told(last: StoredEntry | None) -> str:
    return "none" if last is None else f"{position_of(last)}, published {iso_time(last.publish_time)}"
