"""StoredIds: a producer's stored sequence ids, which decide whether entries may be sent again.

A broker that deduplicates drops entries with ids up to the last id that it has stored under the producer's
name. So an entry that is sent again is lost if the broker drops it and has not stored it. StoredIds keeps,
besides the broker's last id at the first registration:

    ==================  ==================================================================================
    id                  meaning
    ==================  ==================================================================================
    acknowledged to     highest acknowledged id
    found to            pending entries up to this id were found stored
    dropped to          the broker's last id at the last registration: it drops entries up to this id
    refused             ids of entries that the broker has refused, until they are known to be stored
    old version to      entries up to this id have a schema version that is no longer the producer's
    ==================  ==================================================================================

When the producer registers again, pending entries (sent and not acknowledged) are judged by the broker's last
id. ``known`` is the highest id that was acknowledged, found stored, or stored at the first registration. An
entry is claimed if its ids are above ``known`` and not above the broker's last id: the broker would drop it,
so it must be stored as it was sent.

    =====================================  ==============================================================
    the broker's last id                   decision
    =====================================  ==============================================================
    none (-1), and pending entries         error: the broker does not deduplicate, or does not know the
    belong to a transaction, and must not  name; the entries may be stored, and would be stored twice
    be stored twice
    none (-1) otherwise                    send again
    above ``known`` and all pending ids    error: another program has used the name; the broker would
                                           drop further entries
    in a pending entry, before its last    the same error: a broker stores an entry whole or not at all
    id
    not the last id of the last claimed    the same error: this producer has sent no entry with that last
    entry                                  id
    the id of a chunked message whose      error: the broker would drop the last chunks
    last chunk was not sent yet
    any other, and a claimed entry of a    error: the entry may be missing, and cannot be read before
    transaction is in doubt (see below)    the transaction ends
    any other, and a claimed entry is in   send again if the entry is found as it was sent
    doubt
    any other                              send again: the broker drops stored entries
    =====================================  ==============================================================

    =====================================  ==============================================================
    claimed entry                          in doubt
    =====================================  ==============================================================
    chunk with the broker's last id        yes: a restarted broker has the id of a message from its first
                                           chunk, and only the last chunk proves the message
    refused entry, and all after it        yes: later entries may be stored though this one is not, and
                                           another refusal may be lost with the connection
    part of a transaction                  yes: Pulsar 4.0.7 and older may lose an entry and store later
                                           ones, if two producers write a topic's first messages in
                                           transactions
    any other, under a shared name         yes: another program may have used its ids
    any other                              no
    =====================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_spark.errors import NotReadyError, SchemaError, SendError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing
from pulsar_spark.wire.entry.entries import Entry

# Refusal of an entry that is sent again while a deduplicating broker still stores the earlier copy.
_PERSISTENCE_ERROR = 2
_IS_BEING_STORED = "Cannot determine whether the message is a duplicate"


class StoredIds:
    """One producer's stored, dropped and refused ids; see the module's tables.

    Attributes:
        acknowledged_to: highest acknowledged id; -1 for none. The owner raises it with receipts, because a
            call for each receipt takes longer.
        stored_to: pending entries up to this id were proven to be stored before the last resend; -1 for none.
    """

    def __init__(self, topic: str, *, is_shared_name: bool = True, may_repeat: bool = False) -> None:
        self._topic = topic
        self._is_shared_name = is_shared_name
        self._may_repeat = may_repeat
        self.restart()

    def restart(self) -> None:
        """Forgets all ids, because the producer gets another name, or other ids."""
        self.acknowledged_to = -1
        self.stored_to = self._found_to = -1
        self._name = ""
        self._has_named = False
        self._dropped_to = -1
        self._refused: list[int] = []
        self._old_version_to = -1
        self._proof: StoredProof | None = None

    def judge_drop(self, sequence_id: int, oldest: Outgoing | None) -> SendError | None:
        """Judges a receipt which says that the broker has dropped an entry as a duplicate.

        ``oldest``: the entry with the next expected receipt. Returns the error if the dropped entry is not
        stored, because this producer or another program used its id for other rows. None if the entry is
        stored, if it is a chunk before the last, or if the receipt is for another entry.
        """
        if oldest is None or oldest.sequence_id != sequence_id or oldest.kind is EntryKind.CHUNK:
            return None
        if sequence_id <= self.acknowledged_to:
            # Checked before ``_dropped_to``, which in a repeated task is not below any id, ascending or not.
            return SendError(
                f"the broker has dropped rows from sequence id {sequence_id} on as duplicates, because id "
                f"{self.acknowledged_to} was sent before: the rows' ids (column __sequenceId) do not ascend",
                topic=self._topic,
                advice="Drop the column, or sort each task's rows by it and write the rows of each original "
                "producer by themselves, under a producerName of their own, or disable deduplication for the "
                "namespace",
            )
        if sequence_id <= self._dropped_to:
            return None
        return foreign_writes(self._topic, self._name)

    def refused(self, sequence_id: int, code: int, message: str) -> None:
        """Remembers the id of a SEND_ERROR, unless the broker is still storing an earlier copy."""
        if code != _PERSISTENCE_ERROR or _IS_BEING_STORED not in message:
            self._refused.append(sequence_id)

    def version_changed(self, packed: Iterable[Outgoing]) -> None:
        """Records that the producer's schema version differs from that of unacknowledged entries."""
        self._old_version_to = max((entry.highest_sequence_id for entry in packed), default=-1)

    def registered(
        self, name: str, last_sequence_id: int, last_at_first: int, pending: Sequence[Outgoing]
    ) -> StoredProof | None:
        """Judges the pending entries by the broker's last id for the producer's name, see ``in_doubt``.

        ``last_at_first``: the broker's last id at the first registration under this name; -1 for none.

        Returns:
            A proof, to which the caller passes stored entries before ``take_proof``; None if none is needed.

        Raises:
            SendError: pending messages would be dropped, or could be stored twice; or the broker has
                forgotten the producer's ids.
        """
        self._name = name
        self._dropped_to = last_sequence_id
        known = max(self.acknowledged_to, self._found_to, last_at_first)
        # A broker that has only returned -1 may not deduplicate, so its -1 is no error.
        self._has_named |= last_sequence_id >= 0
        if self._has_named and last_sequence_id < known:
            raise SendError(
                f"the broker no longer knows what it had stored of producer {name}: the topic was deleted "
                "and created again, or deduplication was disabled. Acknowledged rows may be missing",
                topic=self._topic,
                advice="Let Spark retry tasks (spark.task.maxFailures)",
            )
        self._refused = [sequence_id for sequence_id in self._refused if sequence_id > known]
        in_doubt = self.in_doubt(last_sequence_id, known, pending)
        self._proof = StoredProof(self._topic, name, in_doubt) if in_doubt else None
        return self._proof

    def in_doubt(self, last: int, known: int, pending: Sequence[Outgoing]) -> list[Outgoing]:
        """Judges pending entries by the module's tables.

        Args:
            last: the broker's last id for the producer's name; -1 for none.
            known: highest id that was acknowledged, found stored, or stored at the first registration.

        Returns:
            The entries in doubt: they must be found in the topic before any entry is sent again.

        Raises:
            SendError: the pending entries must not be sent again, by the tables.
        """
        messages = sum(entry.messages for entry in pending if entry.transaction is not None)
        if last < 0:
            if messages and not self._may_repeat:
                raise SendError(
                    f"the connection was lost with {messages} messages of a transaction unacknowledged; they "
                    "may be stored, and it is not certain that the namespace deduplicates what is sent again",
                    topic=self._topic,
                    advice="Enable deduplication for the namespace, or let Spark retry tasks "
                    "(spark.task.maxFailures)",
                )
            return []
        claimed = [entry for entry in pending if known < entry.sequence_id <= last]
        if (
            last > max([known, *(entry.highest_sequence_id for entry in pending)])
            or any(entry.sequence_id <= last < entry.highest_sequence_id for entry in pending)
            or (claimed and claimed[-1].highest_sequence_id != last)
        ):
            raise foreign_writes(self._topic, self._name)
        if claimed and claimed[-1].kind is EntryKind.CHUNK:
            raise incomplete_message(self._topic)
        in_doubt = [entry for entry in claimed if self._is_in_doubt(entry, last)]
        if any(entry.transaction is not None for entry in in_doubt):
            raise SendError(
                f"{messages} messages of a transaction were not acknowledged when the connection was lost, "
                "and the broker would drop them if they were sent again. Whether all of them are stored "
                "cannot be read before the transaction ends",
                topic=self._topic,
                advice="Let Spark retry tasks (spark.task.maxFailures), or start the query again",
            )
        return in_doubt

    def _is_in_doubt(self, claimed: Outgoing, last: int) -> bool:
        is_last_chunk = claimed.kind.is_chunk and claimed.sequence_id == last
        was_refused = any(sequence_id <= claimed.sequence_id for sequence_id in self._refused)
        return is_last_chunk or was_refused or self._is_shared_name or claimed.transaction is not None

    def take_proof(self) -> bool:
        """Ends the proof, which must have found all entries in doubt; returns whether there was a proof.

        Raises:
            SendError: an entry that the broker would drop was not found in the topic.
            NotReadyError: the search of the topic timed out before all entries were found.
        """
        proof = self._proof
        if proof is not None and not proof.is_found:
            raise proof.error()
        self.stored_to = self._dropped_to
        if proof is None:
            return False
        self._found_to = max(self._found_to, proof.last_sequence_id)
        self._proof = None
        return True

    def check_versions(self, packed: Iterable[Outgoing]) -> None:
        """Raises SchemaError if an entry would be stored now with an old schema version."""
        if any(self._dropped_to < entry.highest_sequence_id <= self._old_version_to for entry in packed):
            raise SchemaError(
                "the version number of the rows' schema has changed, and messages that are not stored yet "
                "have the old number: the topic or its schema was deleted and created again",
                topic=self._topic,
                advice="Run the task or the query again: it writes with the new number",
            )


class StoredProof:
    """Proves that entries are stored as they were sent, by comparison with the topic's entries, in any order.

    The entries to prove are called in doubt. If some are not found:

        ================================  ====================================================
        missing entry                     error
        ================================  ====================================================
        another entry has its id          fatal: another program has used the producer's name
        the search timed out              NotReadyError: it may be found later
        part of a chunked message         fatal: the broker would drop the last chunks
        any other                         fatal: it is not stored, or no longer stored
        ================================  ====================================================

    Attributes:
        count: number of entries in doubt.
        after: the producer's last acknowledged entry, before all entries in doubt; None if unknown.
    """

    def __init__(
        self,
        topic: str,
        producer_name: str,
        entries: Sequence[Outgoing],
        *,
        is_sent_once: bool = False,
        after: MessageId | None = None,
    ) -> None:
        self._topic = topic
        self._is_sent_once = is_sent_once
        self.after = after if is_sent_once else None
        self.found: dict[Outgoing, MessageId] = {}
        self.producer_name = producer_name
        self.first_sequence_id = entries[0].sequence_id
        self.last_sequence_id = entries[-1].highest_sequence_id
        self._missing: dict[tuple[int, int], tuple[bytes, Outgoing]] = {}
        self._has_other = False
        self._is_cut_short = False
        self._first = entries[0]
        for entry in entries:
            metadata = entry.metadata
            self._missing[entry.sequence_id, metadata.chunk_id] = metadata.SerializeToString(), entry
        self.count = len(self._missing)

    @property
    def is_found(self) -> bool:
        """Whether all entries were found."""
        return not self._missing

    def take(self, entry: Entry) -> None:
        """Compares an entry of the topic, from this producer, with the entry in doubt of the same id."""
        place = entry.metadata.sequence_id, entry.metadata.chunk_id
        metadata, sent = self._missing.get(place, (b"", None))
        if sent is None:
            return
        if entry.metadata.SerializeToString() == metadata and entry.payload == sent.payload:
            del self._missing[place]
            self.found[sent] = MessageId(entry.ledger, entry.entry)
        elif not sent.kind.is_chunk:  # a stored chunk may differ: it may be of an earlier attempt
            self._has_other = True

    @property
    def missing(self) -> int:
        """Number of messages that were not found."""
        return sum(entry.messages for _, entry in self._missing.values())

    @property
    def is_passed(self) -> bool:
        """Whether the backward search of the topic may stop, because no missing entry can be earlier.

        Entries are stored in the order of sending. So if each was sent once, the first is before all others.
        """
        return self.is_found or (self._is_sent_once and self._first in self.found)

    def cut_short(self) -> None:
        """Records that there was no time to compare all stored entries."""
        self._is_cut_short = True

    def error(self) -> SendError | NotReadyError:
        """Returns the error for missing entries; see the class's table."""
        entries = [entry for _, entry in self._missing.values()]
        if self._has_other:
            return foreign_writes(self._topic, self.producer_name)
        if self._is_cut_short:
            return NotReadyError(
                f"the search for stored messages of producer {self.producer_name} timed out",
                topic=self._topic,
                advice="An open transaction, or a broker that is starting, may hide them. Raise "
                "sendTimeoutMs and operationTimeoutMs",
            )
        if any(entry.kind.is_chunk for entry in entries):
            return incomplete_message(self._topic)
        return SendError(
            f"{self.missing} messages were not acknowledged when the connection was lost; they were not "
            "found in the topic, and the broker would drop them as duplicates of producer "
            f"{self.producer_name} if they were sent again",
            topic=self._topic,
            advice="Somebody else may have written under that name, an open transaction may hide them, "
            "or the broker may have removed them. Let Spark retry tasks (spark.task.maxFailures)",
        )


def incomplete_message(topic: str) -> SendError:
    """Returns the error of a producer that can no longer send the last chunks of a message."""
    return SendError(
        "the connection was lost while a chunked message was sent, and the broker would drop its remaining "
        "chunks",
        topic=topic,
        advice="Let Spark retry tasks (spark.task.maxFailures)",
    )


def foreign_writes(topic: str, name: str) -> SendError:
    """Returns the error of a producer whose name another program has used meanwhile."""
    return SendError(
        f"somebody else, such as another run of this task, has written under the producer name {name}",
        topic=topic,
        advice="Let Spark retry tasks (spark.task.maxFailures), and do not use one producerName in two "
        "queries",
    )
