"""Faults of writing, in the protocol layer and the client: rows that are lost, doubled or reordered."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="late-receipt-taken-for-the-resent-entry",
        file="pulsar_spark/protocol/partition_writer.py",
        old="        if not self._is_connected:\n            return None\n        entry = self._window",
        new="        entry = self._window",
        test="tests/protocol/test_partition_writer.py::test_each_input_in_each_state",
    ),
    Fault(
        name="first-sequence-id-is-the-last-that-is-stored",
        file="pulsar_spark/protocol/partition_writer.py",
        old="max(self._first_sequence_id, last_sequence_id + 1)",
        new="max(self._first_sequence_id, last_sequence_id)",
        test="tests/protocol/test_partition_writer.py::test_the_first_sequence_id",
    ),
    Fault(
        name="chunk-in-doubt-sent-again",
        file="pulsar_spark/protocol/partition_writer.py",
        old="if self._in_doubt and stored is None:",
        new="if self._in_doubt and attempt is None:",
        test="tests/protocol/test_partition_writer.py::"
        "test_a_message_in_chunks_is_resent_only_if_its_last_one_is_stored",
    ),
    Fault(
        name="transaction-repeated-where-nothing-deduplicates",
        file="pulsar_spark/protocol/stored_check.py",
        old="return StoredCheck.MAY_REPEAT if in_transaction else StoredCheck.RESEND",
        new="return StoredCheck.RESEND",
        test="tests/protocol/test_stored_check.py::test_the_table",
    ),
    Fault(
        name="foreign-writes-under-the-name-ignored",
        file="pulsar_spark/protocol/stored_check.py",
        old="if last_sequence_id > max([sent, *(entry.highest_sequence_id for entry in pending)]):",
        new="if last_sequence_id > max([sent, last_sequence_id]):",
        test="tests/protocol/test_stored_check.py::test_the_table",
    ),
    Fault(
        name="rows-left-out-by-their-number-alone",
        file="pulsar_spark/protocol/dedup_replay.py",
        old="if self._digest.digest() == self._stored_digest:",
        new="if self._stored_digest is not None:",
        test="tests/protocol/test_dedup_replay.py::test_single_messages_are_compared_too",
    ),
    Fault(
        name="rows-held-back-dropped-at-the-end",
        file="pulsar_spark/protocol/dedup_replay.py",
        old="        self.verdict = Verdict.DIFFERENT\n        return self._spool.take()",
        new="        self.verdict = Verdict.DIFFERENT\n        return ()",
        test="tests/protocol/test_dedup_replay.py::test_a_run_that_ends_before_the_border_is_sent_again",
    ),
    Fault(
        name="rows-cut-off-a-stored-batch-dropped",
        file="pulsar_spark/protocol/dedup_replay.py",
        old="for one in ([] if tail is None else [tail]) + list(rest)]",
        new="for one in rest]",
        test="tests/protocol/test_dedup_replay.py::test_what_is_stored_ends_anywhere_within_a_batch",
    ),
    Fault(
        name="receipt-of-a-newer-entry-accepted",
        file="pulsar_spark/protocol/pending.py",
        old="if sequence_id > self._entries[0].sequence_id:",
        new="if sequence_id > self._entries[-1].sequence_id:",
        test="tests/protocol/test_pending.py::"
        "test_a_receipt_for_a_newer_entry_ends_the_connection_and_takes_nothing_out",
    ),
    Fault(
        name="memory-limit-of-pending-entries-ignored",
        file="pulsar_spark/protocol/pending.py",
        old=" or self._bytes + entry.size > self._max_bytes:",
        new=":",
        test="tests/protocol/test_pending.py::test_room",
    ),
    Fault(
        name="chunks-acknowledged-before-the-last-not-sent-again",
        file="pulsar_spark/protocol/pending.py",
        old="            self._partly.append(entry)\n",
        new="            pass\n",
        test="tests/protocol/test_chunk_splitter.py::"
        "test_after_a_reconnect_the_message_begins_again_as_another_one",
    ),
    Fault(
        name="batch-closed-one-message-late",
        file="pulsar_spark/protocol/batcher.py",
        old="if self._messages >= self._max_messages > 0",
        new="if self._messages > self._max_messages > 0",
        test="tests/protocol/test_batcher.py::test_what_is_full_is_not_held_back",
    ),
    Fault(
        name="entry-larger-than-the-broker-takes-sent",
        file="pulsar_spark/protocol/packer.py",
        old="if len(compress(self._compression, body[start:end])) > self.max_batch_size:",
        new="if end < start:",
        test="tests/protocol/test_packer.py::test_what_is_too_large_is_refused_with_its_topic_and_size",
    ),
    Fault(
        name="duplicates-share-a-batch-with-new-rows",
        file="pulsar_spark/protocol/send_order.py",
        old="begins = is_new != np.append(self._last_is_new, is_new[:-1])",
        new="begins = np.zeros(len(ids), np.bool_)",
        test="tests/protocol/test_send_order.py::test_duplicates_and_new_ones_are_apart",
    ),
    Fault(
        name="chunks-out-of-order",
        file="pulsar_spark/protocol/chunk_splitter.py",
        old='fields = chunk_fields(f"{self._name}-{attempt}", number,',
        new='fields = chunk_fields(f"{self._name}-{attempt}", len(self.entries) - 1 - number,',
        test="tests/protocol/test_chunk_splitter.py::test_the_parts_are_the_whole",
    ),
    Fault(
        name="flush-leaves-the-open-batch",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="                producer.send_open_batch()\n            for producer in self._producers:\n",
        new="                producer.check()\n            for producer in self._producers:\n",
        test="tests/client/writing/test_topic_writer.py::test_batches_close_by_count_and_by_flush",
    ),
    Fault(
        name="flush-without-receipts",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="                producer.flush()\n",
        new="                producer.check()\n",
        test="tests/client/writing/test_topic_writer.py::test_flush_waits_for_all_receipts",
    ),
    Fault(
        name="rows-of-a-partition-reordered",
        file="pulsar_spark/client/writing/topic_writer.py",
        old='order = np.argsort(partitions, kind="stable")',
        new="order = np.lexsort((-np.arange(len(partitions)), partitions))",
        test="tests/client/writing/test_topic_writer.py::test_a_row_may_name_its_partition",
    ),
    Fault(
        name="micro-batches-share-sequence-ids",
        file="pulsar_spark/client/writing/dedup.py",
        old="self.first_sequence_id = (batch + 1) * IDS_PER_BATCH",
        new="self.first_sequence_id = IDS_PER_BATCH",
        test="tests/spark/sink/test_delivery.py::test_micro_batches_have_their_own_sequence_ids",
    ),
    Fault(
        name="other-rows-sent-under-the-name-of-those-stored",
        file="pulsar_spark/client/writing/dedup.py",
        old='self.reopen(f"{self._dedup.name}-{uuid.uuid4().hex[:8]}", 0)',
        new="self.reopen(self._dedup.name, 0)",
        test="tests/client/writing/test_dedup.py::test_other_rows_are_all_sent_under_another_name",
    ),
)
