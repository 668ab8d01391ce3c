"""Faults of writing: rows that are lost, stored twice or counted as stored."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="late-receipt-taken-for-the-resent-entry",
        file="pulsar_spark/protocol/writing/partition_writer.py",
        old="        if not self._is_connected:\n            return None\n        stored",
        new="        stored",
        test="tests/protocol/writing/test_partition_writer.py::test_each_input_in_each_state",
    ),
    Fault(
        name="refused-entry-of-a-transaction-taken-for-stored",
        file="pulsar_spark/protocol/writing/stored_check.py",
        old="if any(entry.transaction is not None for entry in in_doubt):",
        new="if any(entry.transaction is not None for entry in in_doubt) and not claimed:",
        test="tests/protocol/writing/test_stored_check.py::"
        "test_what_the_broker_refused_in_a_transaction_cannot_be_compared",
    ),
    Fault(
        name="chunk-in-doubt-sent-again",
        file="pulsar_spark/protocol/writing/stored_ids.py",
        old="if not proof.is_found:",
        new="if not self._name:",
        test="tests/protocol/writing/test_partition_writer.py::"
        "test_a_message_in_chunks_is_resent_only_if_it_is_stored",
    ),
    Fault(
        name="first-sequence-id-is-the-last-that-is-stored",
        file="pulsar_spark/protocol/writing/packer.py",
        old="max(first_sequence_id, last_sequence_id + 1)",
        new="max(first_sequence_id, last_sequence_id)",
        test="tests/protocol/writing/test_registered_packer.py::test_the_first_sequence_id",
    ),
    Fault(
        name="foreign-writes-under-the-name-ignored",
        file="pulsar_spark/protocol/writing/stored_check.py",
        old="last > max([known, *(entry.highest_sequence_id for entry in pending)])",
        new="last > max([known, last])",
        test="tests/protocol/writing/test_stored_check.py::test_the_tables",
    ),
    Fault(
        name="stored-entry-not-compared-with-what-was-sent",
        file="pulsar_spark/protocol/writing/stored_check.py",
        old="if entry.metadata.SerializeToString() == metadata and entry.payload == sent.payload:",
        new="if entry.metadata.sequence_id == sent.sequence_id:",
        test="tests/protocol/writing/test_stored_check.py::"
        "test_what_is_stored_by_the_id_and_differs_is_somebody_elses",
    ),
    Fault(
        name="dropped-entry-counted-as-written",
        file="pulsar_spark/protocol/writing/stored_ids.py",
        old="if sequence_id <= self._dropped_to:",
        new="if sequence_id >= 0:",
        test="tests/protocol/writing/test_partition_writer.py::test_what_is_sent_once_must_not_be_dropped",
    ),
    Fault(
        name="rows-dropped-by-the-ids-of-others-counted-as-written",
        file="pulsar_spark/protocol/writing/stored_ids.py",
        old="if sequence_id <= self.acknowledged_to:",
        new="if self._dropped_to < sequence_id <= self.acknowledged_to:",
        test="tests/client/writing/test_topic_writer.py::"
        "test_rows_of_which_a_broker_drops_some_by_their_ids_are_an_error_in_each_run",
    ),
    Fault(
        name="topic-created-again-under-a-task-not-noticed",
        file="pulsar_spark/protocol/writing/stored_ids.py",
        old="if self._has_named and last_sequence_id < known:",
        new="if -1 < last_sequence_id < known:",
        test="tests/protocol/writing/test_stored_ids.py::"
        "test_a_broker_that_has_forgotten_what_it_had_stored_is_an_error",
    ),
    Fault(
        name="chunks-acknowledged-before-the-last-not-sent-again",
        file="pulsar_spark/protocol/writing/pending.py",
        old="            self._partly.append(entry)\n",
        new="            pass\n",
        test="tests/protocol/writing/test_split_message.py::"
        "test_after_a_reconnect_the_message_begins_again_as_another_one",
    ),
    Fault(
        name="end-of-a-message-in-chunks-dropped",
        file="pulsar_spark/protocol/writing/stored_check.py",
        old="if claimed and claimed[-1].kind is EntryKind.CHUNK:",
        new="if claimed and not pending:",
        test="tests/protocol/writing/test_stored_check.py::test_the_tables",
    ),
    Fault(
        name="dropped-message-of-a-run-taken-for-a-stored-one",
        file="pulsar_spark/protocol/writing/partition_writer.py",
        old="if ledger < 0 or sequence_id != oldest.sequence_id + count:",
        new="if sequence_id != oldest.sequence_id + count:",
        test="tests/protocol/writing/test_run_receipts.py::"
        "test_a_dropped_message_in_a_run_is_an_error_unless_it_is_known_to_be_stored",
    ),
    Fault(
        name="message-left-out-where-a-run-is-cut",
        file="pulsar_spark/protocol/writing/outgoing.py",
        old="self._sections.part(count, self.messages)",
        new="self._sections.part(count + 1, self.messages)",
        test="tests/protocol/writing/test_outgoing.py::test_the_parts_of_a_run_are_the_whole",
    ),
    Fault(
        name="flush-leaves-the-open-batch",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="                producer.send_open_batch()\n            for producer in",
        new="                producer.check()\n            for producer in",
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
        name="last-joined-rows-not-sent",
        file="pulsar_spark/spark/rows/joined_batches.py",
        old="    if held:\n        yield _one(held)\n\n",
        new="\n",
        test="tests/spark/rows/test_joined_batches.py::"
        "test_all_rows_come_in_order_in_the_fewest_batches_that_the_limit_allows",
    ),
    Fault(
        name="rows-held-for-their-key-lost-at-the-end",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="rows = self._window.take()",
        new="rows = None",
        test="tests/client/writing/test_topic_writer_keys.py::"
        "test_rows_of_a_key_are_in_one_partition_in_their_order",
    ),
    Fault(
        name="open-batch-lost-before-batches-of-one-key",
        file="pulsar_spark/protocol/writing/batcher.py",
        old="closed = self.take()",
        new="closed: list[Batch] = []",
        test="tests/protocol/writing/test_batcher.py::test_groups_are_cut_one_by_one",
    ),
    Fault(
        name="batch-larger-than-its-window",
        file="pulsar_spark/protocol/writing/batcher.py",
        old="        self._max_messages = min(self._max_messages, max_messages)\n",
        new="",
        test="tests/client/writing/test_producer.py::test_a_batch_is_no_larger_than_the_pending_window",
    ),
    Fault(
        name="restart-of-a-query-taken-for-no-replay",
        file="pulsar_spark/spark/sink/write_numbers.py",
        old="return first if counted_run == run and _is_run_id(run) else batch",
        new="return first",
        test="tests/spark/sink/test_delivery.py::test_a_task_knows_whether_it_may_be_a_replay",
    ),
    Fault(
        name="producers-without-rows-not-opened-in-a-replay",
        file="pulsar_spark/client/writing/dedup.py",
        old="return self.may_be_replay or self.strict or self.run_of(topic).rows > 0",
        new="return False",
        test="tests/client/writing/test_dedup_opening.py::test_a_possible_replay_opens_all",
    ),
    Fault(
        name="copies-not-excluded-by-the-first-partition",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="self._open([0] if has_shared_name else [])",
        new="self._open([])",
        test="tests/client/writing/test_topic_writer.py::"
        "test_writers_of_one_name_exclude_each_other_by_the_first_partition",
    ),
    Fault(
        name="other-partitions-not-searched-in-a-repeated-stage",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="        self._open([])  # the others, if one of these has found that\n",
        new="",
        test="tests/client/writing/test_dedup_opening.py::"
        "test_a_stage_that_is_repeated_silently_doubles_no_row",
    ),
    Fault(
        name="task-waits-for-a-name-while-it-has-others",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="            opening=opening,\n",
        new="",
        test="tests/client/writing/test_dedup.py::test_copies_of_a_task_do_not_wait_for_each_other",
    ),
    Fault(
        name="writes-of-another-copy-taken-for-own-ones",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="        if self._has_read:\n",
        new="        if self:\n",
        test="tests/client/writing/test_dedup.py::"
        "test_what_another_copy_writes_while_a_topic_is_opened_again_is_noticed",
    ),
    Fault(
        name="metadata-of-the-first-entry-not-signed",
        file="pulsar_spark/wire/entry/origin.py",
        old='digest.update(struct.pack(">I", len(metadata)) + metadata)',
        new='digest.update(b"")',
        test="tests/client/writing/test_dedup.py::test_a_copy_of_the_first_entry_hides_no_row",
    ),
    Fault(
        name="first-entry-of-another-name-taken-for-the-only-one",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="entry.name == wanted.name and ",
        new="",
        test="tests/client/writing/test_dedup.py::test_a_copy_of_the_first_entry_hides_no_row",
    ),
    Fault(
        name="first-entry-not-waited-for",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="if self._partition.begin is not None and not self._dedup.must_prove(self.topic):",
        new="if self.topic:",
        test="tests/client/writing/test_dedup.py::"
        "test_only_the_first_entry_is_sent_before_the_receipt_that_says_where_it_is",
    ),
    Fault(
        name="rows-held-behind-the-first-entry-dropped",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="        for send, items in held:\n",
        new="        for send, items in held[1:]:\n",
        test="tests/client/writing/test_dedup.py::"
        "test_only_the_first_entry_is_sent_before_the_receipt_that_says_where_it_is",
    ),
    Fault(
        name="rows-of-another-write-found",
        file="pulsar_spark/wire/entry/origin.py",
        old="return self.batch, self.write",
        new="return self.batch, 0",
        test="tests/client/writing/test_dedup_replays.py::test_rows_that_two_writes_have_are_stored_twice",
    ),
    Fault(
        name="rows-that-the-run-before-has-doubled-not-told",
        file="pulsar_spark/protocol/replay/duplicates.py",
        old="sent + earlier.total() - max(earlier.values(), default=0)",
        new="sent",
        test="tests/protocol/replay/test_duplicates.py::test_how_many_may_be_duplicated",
    ),
    Fault(
        name="row-sent-that-another-task-has-stored",
        file="pulsar_spark/client/writing/dedup.py",
        old="            self._check_others(topic, run, first_words(encoded)[is_new])\n",
        new="",
        test="tests/spark/sink/test_duplicates.py::test_a_strict_run_sends_no_row_that_is_stored",
    ),
    Fault(
        name="hidden-rows-sent-again-silently",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="return RunVerdict.HIDDEN if is_hidden else RunVerdict.NOTHING",
        new="return RunVerdict.NOTHING",
        test="tests/client/writing/test_dedup_replays.py::"
        "test_rows_that_are_hidden_are_not_sent_again_silently",
    ),
    Fault(
        name="stored-row-found-twice",
        file="pulsar_spark/protocol/replay/stored_rows.py",
        old="        np.add.at(self._taken, at[is_same], 1)\n",
        new="",
        test="tests/protocol/replay/test_stored_rows.py::test_what_is_found",
    ),
    Fault(
        name="rows-looked-for-in-their-own-partition-only",
        file="pulsar_spark/protocol/replay/stored_rows.py",
        old="        if not found.all():\n            self.read_rest()\n",
        new="",
        test="tests/client/writing/test_dedup_replays.py::test_rows_are_found_in_other_partitions",
    ),
    Fault(
        name="micro-batches-share-sequence-ids",
        file="pulsar_spark/protocol/replay/task_ids.py",
        old="return (batch + 1) * IDS_PER_BATCH",
        new="return IDS_PER_BATCH",
        test="tests/protocol/replay/test_task_ids.py::"
        "test_ids_of_a_micro_batch_begin_in_the_first_half_of_its_ids",
    ),
)
