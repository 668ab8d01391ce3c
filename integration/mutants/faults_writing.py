"""Faults of writing, in the protocol layer and the client: rows that are lost, doubled or reordered."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="receipts-given-to-another-producer",
        file="pulsar_spark/wire/receipts.py",
        old='order = np.argsort(producers, kind="stable")',
        new="order = np.arange(len(producers))[::-1]",
        test="tests/wire/test_receipts.py::test_by_column_is_as_parsed",
    ),
    Fault(
        name="receipt-with-an-unsigned-ledger-id",
        file="pulsar_spark/wire/receipts.py",
        old="command.message_id.entryId], np.uint64).view(np.int64)",
        new="command.message_id.entryId], np.uint64)",
        test="tests/wire/test_receipts.py::test_any_cut_gives_the_same_receipts",
    ),
    Fault(
        name="messages-by-column-with-the-old-schema-version",
        file="pulsar_spark/protocol/packer.py",
        old="            if self.version_field != version:\n                return\n",
        new="",
        test="tests/protocol/test_packer.py::test_entries_have_the_schema_version_of_the_moment_they_are_made",
    ),
    Fault(
        name="messages-by-column-begin-at-the-wrong-id",
        file="pulsar_spark/protocol/packer.py",
        old="            self.next_sequence_id = number + 1\n",
        new="            self.next_sequence_id = number\n",
        test="tests/protocol/test_packer.py::test_messages_by_column_become_the_same_entries",
    ),
    Fault(
        name="messages-with-ids-of-their-own-numbered-anew",
        file="pulsar_spark/protocol/packer.py",
        old=" or self._encryption is not None or messages.has_ids",
        new=" or self._encryption is not None",
        test="tests/protocol/test_packer.py::test_messages_with_ids_of_their_own_keep_them",
    ),
    Fault(
        name="unbatched-values-of-other-rows",
        file="pulsar_spark/wire/singles.py",
        old="    at = starts[:-1] - first\n",
        new="    at = starts[:-1]\n",
        test="tests/wire/test_singles.py::test_large_payloads_are_views_of_the_column",
    ),
    Fault(
        name="slice-of-messages-with-the-metadata-of-others",
        file="pulsar_spark/wire/singles.py",
        old="self._metadata_bounds[first : max(first, stop) + 1]",
        new="self._metadata_bounds[: max(first, stop) + 1]",
        test="tests/wire/test_singles.py::test_a_slice_has_its_own_rows",
    ),
    Fault(
        name="all-producers-of-a-topic-opened-at-once",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="first = [] if self._producers else opening[:1]",
        new="first = opening[:0]",
        test="tests/client/writing/test_topic_writer.py::"
        "test_the_first_producer_is_opened_alone_and_the_others_at_once",
    ),
    Fault(
        name="producers-that-were-opened-beside-a-refused-one-left-open",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="            self._producers += [each for each in answers if isinstance(each, Producer)]\n"
        "            for error in answers:\n"
        "                if isinstance(error, PulsarError):\n"
        "                    raise error\n",
        new="            for error in answers:\n"
        "                if isinstance(error, PulsarError):\n"
        "                    raise error\n"
        "            self._producers += [each for each in answers if isinstance(each, Producer)]\n",
        test="tests/client/writing/test_topic_writer.py::test_a_producer_that_is_refused_leaves_no_other_open",
    ),
    Fault(
        name="schema-version-of-the-partition-opened-last",
        file="pulsar_spark/client/writing/dedup.py",
        old="versions[min(found, key=lambda partition: partition.partition)]",
        new="versions[found[-1]]",
        test="tests/client/writing/test_dedup.py::"
        "test_the_version_is_that_of_the_first_partition_whichever_is_opened_first",
    ),
    Fault(
        name="resend-without-receipts-tried-for-ever",
        file="pulsar_spark/protocol/pending.py",
        old="            self._progress_at = self._progress_before\n",
        new="            pass\n",
        test="tests/protocol/test_pending.py::"
        "test_what_is_sent_again_has_no_more_time_without_receipts[all resends are lost]",
    ),
    Fault(
        name="refusal-forgotten-before-its-receipt",
        file="pulsar_spark/protocol/partition_writer.py",
        old="refused=min(self._refused, default=None),",
        new="refused=self._refused.pop() if self._refused else None,",
        test="tests/protocol/test_partition_writer.py::test_a_refusal_is_settled_by_the_receipt",
    ),
    Fault(
        name="refused-entry-of-a-transaction-taken-for-stored",
        file="pulsar_spark/protocol/stored_check.py",
        old="        return StoredCheck.UNREADABLE, []",
        new="        return StoredCheck.RESEND, []",
        test="tests/protocol/test_stored_check.py::"
        "test_what_the_broker_refused_in_a_transaction_cannot_be_compared",
    ),
    Fault(
        name="claimed-entry-of-a-transaction-taken-for-stored",
        file="pulsar_spark/protocol/stored_check.py",
        old="return is_shared_name or entry.transaction is not None",
        new="return is_shared_name and entry.transaction is None",
        test="tests/protocol/test_partition_writer.py::"
        "test_what_a_transaction_may_lack_is_an_error_that_names_it",
    ),
    Fault(
        name="late-receipt-taken-for-the-resent-entry",
        file="pulsar_spark/protocol/partition_writer.py",
        old="        if not self._is_connected:\n            return None\n        if ledger",
        new="        if ledger",
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
        old="if not self._proof.is_found:",
        new="if not attempt:",
        test="tests/protocol/test_partition_writer.py::test_a_message_in_chunks_is_resent_only_if_it_is_stored",
    ),
    Fault(
        name="transaction-repeated-where-nothing-deduplicates",
        file="pulsar_spark/protocol/stored_check.py",
        old="return (StoredCheck.MAY_REPEAT if must_not_repeat else StoredCheck.RESEND), []",
        new="return StoredCheck.RESEND, []",
        test="tests/protocol/test_stored_check.py::test_the_tables",
    ),
    Fault(
        name="foreign-writes-under-the-name-ignored",
        file="pulsar_spark/protocol/stored_check.py",
        old="if last > max([known, *(entry.highest_sequence_id for entry in pending)]):",
        new="if last > max([known, last]):",
        test="tests/protocol/test_stored_check.py::test_the_tables",
    ),
    Fault(
        name="stored-entry-not-compared-with-what-was-sent",
        file="pulsar_spark/protocol/stored_check.py",
        old="if entry.metadata.SerializeToString() == metadata and entry.payload == sent.payload:",
        new="if entry.metadata.sequence_id == sent.sequence_id:",
        test="tests/protocol/test_stored_check.py::test_what_is_stored_by_the_id_and_differs_is_somebody_elses",
    ),
    Fault(
        name="end-of-a-message-in-chunks-dropped",
        file="pulsar_spark/protocol/stored_check.py",
        old="if claimed and claimed[-1].kind is EntryKind.CHUNK:",
        new="if claimed and not pending:",
        test="tests/protocol/test_stored_check.py::test_the_tables",
    ),
    Fault(
        name="dropped-entry-counted-as-written",
        file="pulsar_spark/protocol/partition_writer.py",
        old="if ledger < 0 and self._is_dropped(sequence_id):",
        new="if ledger < 0 and sequence_id < 0:",
        test="tests/protocol/test_partition_writer.py::test_what_is_sent_once_must_not_be_dropped",
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
        old="if sequence_id > entry.sequence_id:",
        new="if sequence_id > self._entries[-1].sequence_id:",
        test="tests/protocol/test_pending.py::"
        "test_a_receipt_for_a_newer_entry_ends_the_connection_and_takes_nothing_out",
    ),
    Fault(
        name="memory-limit-of-pending-entries-ignored",
        file="pulsar_spark/protocol/pending.py",
        old=" or self._bytes + size > max_bytes:",
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
        old="if len(message) > room and len(compress(self._compression, message)) > room:",
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
    Fault(
        name="other-tasks-not-found-where-messages-are-encrypted",
        file="pulsar_spark/client/writing/producer.py",
        old="self._is_encrypted = is_encrypted or encryptor is not None",
        new="self._is_encrypted = encryptor is not None",
        test="tests/client/writing/test_dedup.py::test_where_only_encrypted_messages_are_taken",
    ),
    Fault(
        name="strict-task-writes-twice",
        file="pulsar_spark/client/writing/dedup.py",
        old="        if self._dedup.strict:\n",
        new="        if not self._dedup.required:\n",
        test="tests/client/writing/test_dedup.py::test_what_may_be_there_twice",
    ),
    Fault(
        name="duplicates-of-a-partition-without-rows-not-counted",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="if part.messages or part.possible_duplicates}",
        new="if part.messages}",
        test="tests/client/writing/test_dedup.py::test_what_may_be_there_twice",
    ),
    Fault(
        name="entry-without-its-schema-version",
        file="pulsar_spark/protocol/packer.py",
        old="fields = self.version_field + dedup_mark",
        new="fields = dedup_mark",
        test="tests/client/writing/test_producer_schemas.py::test_all_kinds_of_entries_say_the_version",
    ),
    Fault(
        name="schema-registered-once-only",
        file="pulsar_spark/client/writing/producer_link.py",
        old="schema=options.schema,",
        new="schema=None if epoch else options.schema,",
        test="tests/client/writing/test_producer_schemas.py::"
        "test_what_is_pending_is_not_sent_by_a_number_that_is_another_schema_now",
    ),
)
