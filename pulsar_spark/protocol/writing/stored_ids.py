"""StoredIds: which of a producer's sequence ids are stored, and so which entries may be sent again.

A broker that deduplicates drops what is sent with an id up to the last one that it has stored under the
producer's name. So an entry that is sent again is lost if the broker drops it and has not stored it. What is
remembered of a name, besides the last id that the broker named when the producer first registered:

    ==================  ====================================================================================
    id                  meaning
    ==================  ====================================================================================
    acknowledged to     the highest id that was acknowledged
    found to            up to here pending entries were found stored
    dropped to          up to here the broker drops what is sent: its last id at the last registration
    refused             ids of entries that the broker has refused, until they are known to be stored
    old version to      entries up to here were packed with a schema version that is no longer the producer's
    ==================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_spark.errors import SchemaError, SendError
from pulsar_spark.protocol.writing.outgoing import EntryKind, Outgoing
from pulsar_spark.protocol.writing.stored_check import StoredProof, check_stored, foreign_writes

# How a deduplicating broker refuses an entry that is sent again while it still stores the earlier copy.
_PERSISTENCE_ERROR = 2
_IS_BEING_STORED = "Cannot determine whether the message is a duplicate"


class StoredIds:
    """The ids of one producer that are known to be stored, dropped or refused; see the module's table.

    Others may use an ``is_shared_name``, and messages of a transaction ``may_repeat``: see ``check_stored``.

    Attributes:
        acknowledged_to: the highest id that was acknowledged; -1 for none. The owner raises it with
            receipts: a call for each of them would take longer.
    """

    def __init__(self, topic: str, *, is_shared_name: bool = True, may_repeat: bool = False) -> None:
        self._topic = topic
        self._is_shared_name = is_shared_name
        self._may_repeat = may_repeat
        self.restart()

    def restart(self) -> None:
        """Forget all: the producer gets another name, or other ids."""
        self.acknowledged_to = -1
        self._found_to = -1
        self._name = ""
        self._has_named = False
        self._dropped_to = -1
        self._refused: list[int] = []
        self._old_version_to = -1
        self._proof: StoredProof | None = None

    def judge_drop(self, sequence_id: int, oldest: Outgoing | None) -> SendError | None:
        """Judge a receipt that says that the broker has dropped an entry as a duplicate by its sequence id.

        Its receipt must come next that ``oldest`` begins with. Returns the error if that entry was dropped
        and is not stored: this producer has used its id for other rows, or somebody else has. None if it is
        stored, if more of its chunks follow, or if the receipt is for another entry.
        """
        if oldest is None or oldest.sequence_id != sequence_id or oldest.kind is EntryKind.CHUNK:
            return None
        if sequence_id <= self.acknowledged_to:
            # Also up to the id that the broker named first: a task that is run again must not succeed.
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
        """Remember the id of a SEND_ERROR, unless the broker is still storing an earlier copy."""
        if code != _PERSISTENCE_ERROR or _IS_BEING_STORED not in message:
            self._refused.append(sequence_id)

    def version_changed(self, packed: Iterable[Outgoing]) -> None:
        """Note that the producer's schema has another version than entries that are not acknowledged."""
        self._old_version_to = max((entry.highest_sequence_id for entry in packed), default=-1)

    def registered(
        self, name: str, last_sequence_id: int, last_at_first: int, pending: Sequence[Outgoing]
    ) -> StoredProof | None:
        """Judge the pending entries by the last id that the broker has stored under the producer's name.

        Ids that it has refused take part in that; see ``check_stored``. It was ``last_at_first`` when the
        producer was registered for the first time under this name; -1 stands for none.

        Returns:
            The proof that needs the stored entries before ``take_proof``; None if there is nothing to prove.

        Raises:
            SendError: pending messages would be dropped, or could be stored twice; or the broker no longer
                knows what it had stored.
        """
        self._name = name
        self._dropped_to = last_sequence_id
        known = max(self.acknowledged_to, self._found_to, last_at_first)
        # Until it has named an id it may not deduplicate at all.
        self._has_named |= last_sequence_id >= 0
        if self._has_named and last_sequence_id < known:
            raise SendError(
                f"the broker no longer knows what it had stored of producer {name}: the topic was deleted "
                "and created again, or deduplication was disabled. Acknowledged rows may be missing",
                topic=self._topic,
                advice="Let Spark retry tasks (spark.task.maxFailures)",
            )
        self._refused = [sequence_id for sequence_id in self._refused if sequence_id > known]
        in_doubt = check_stored(
            self._topic,
            name,
            last_sequence_id,
            known,
            pending,
            is_shared_name=self._is_shared_name,
            may_repeat=self._may_repeat,
            refused=min(self._refused, default=None),
        )
        self._proof = StoredProof(self._topic, name, in_doubt) if in_doubt else None
        return self._proof

    def take_proof(self) -> bool:
        """Take what the proof has found; return whether there was one to take.

        Raises:
            SendError: the broker would drop entries that are not stored.
            NotReadyError: it is not known yet whether they are stored.
        """
        proof = self._proof
        if proof is None:
            return False
        if not proof.is_found:
            raise proof.error()
        self._found_to = max(self._found_to, proof.last_sequence_id)
        self._proof = None
        return True

    def check_versions(self, packed: Iterable[Outgoing]) -> None:
        """Raise SchemaError if one of the entries would be stored now with an old schema version."""
        if any(self._dropped_to < entry.highest_sequence_id <= self._old_version_to for entry in packed):
            raise SchemaError(
                "the version number of the rows' schema has changed, and messages that are not stored yet "
                "have the old number: the topic or its schema was deleted and created again",
                topic=self._topic,
                advice="Run the task or the query again: it writes with the new number",
            )
