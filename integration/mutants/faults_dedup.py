"""Faults of deduplication: rows of a replay that are lost, doubled or not told of."""

from integration.mutants.fault import Fault

_CLIENT = "tests/client/writing/"

FAULTS = (
    # ---- origins
    Fault(
        name="origin-signature-not-checked",
        file="pulsar_spark/wire/entry/origin.py",
        old='if signature != _signature(fields, secret, topic, b"" if has_begin(field) else payload):',
        new="if not signature:",
        test=_CLIENT + "test_dedup_producer.py::test_rows_in_entries_of_others_do_not_count",
    ),
    Fault(
        name="origin-of-another-topic-accepted",
        file="pulsar_spark/wire/entry/origin.py",
        old='fields + struct.pack(">H", len(name)) + name, key=secret',
        new="fields, key=secret",
        test=_CLIENT
        + "test_dedup_producer.py::test_rows_in_entries_of_others_do_not_count[False-another topic]",
    ),
    Fault(
        name="signature-of-the-first-entry-not-bound-to-its-payload",
        file="pulsar_spark/wire/entry/origin.py",
        old="    digest.update(payload)\n",
        new="",
        test=_CLIENT + "test_dedup_producer.py::"
        "test_rows_in_entries_of_others_do_not_count[False-that of the first entry]",
    ),
    Fault(
        name="entries-made-by-column-share-what-is-signed-for-one-payload",
        file="pulsar_spark/protocol/writing/packer.py",
        old=" or not self.is_origin_alike:",
        new=":",
        test="tests/protocol/writing/test_packer.py::test_an_origin_may_be_of_the_payload_as_it_is_stored[run]",
    ),
    Fault(
        name="entries-without-their-origin",
        file="pulsar_spark/protocol/writing/packer.py",
        old='return b"" if self.origin is None else self.origin(payload)',
        new='return b""',
        test="tests/protocol/writing/test_packer.py::test_all_entries_say_the_version_of_their_schema_and_their_origin",
    ),
    Fault(
        name="origin-lost-where-entries-are-read-one-by-one",
        file="pulsar_spark/wire/entry/entry_fields.py",
        old="if is_compression or (number == _ORIGIN and isinstance(value, bytes)):",
        new="if is_compression:",
        test="tests/wire/entry/test_entries.py::test_what_says_how_and_by_whom_an_entry_was_written",
    ),
    Fault(
        name="begin-not-named",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="origin = replace(self._dedup.origin, begin=self._partition.begin, rows=self._run.rows)",
        new="origin = replace(self._dedup.origin, rows=self._run.rows)",
        test=_CLIENT + "test_topic_writer_keys.py::test_a_run_that_was_cut_off_is_completed",
    ),
    Fault(
        name="rows-taken-so-far-not-said",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="origin = replace(self._dedup.origin, begin=self._partition.begin, rows=self._run.rows)",
        new="origin = replace(self._dedup.origin, begin=self._partition.begin)",
        test=_CLIENT
        + "test_dedup_producer.py::test_entries_say_who_wrote_them_and_where_the_micro_batch_began",
    ),
    Fault(
        name="first-entry-not-waited-for",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="if self._partition.begin is not None and not self._dedup.must_prove(self.topic):",
        new="if self.topic:",
        test=_CLIENT + "test_dedup_producer.py::test_nothing_is_sent_before_the_first_entry_is_acknowledged",
    ),
    Fault(
        name="rows-held-behind-the-first-entry-dropped",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="        for send, items in held:\n",
        new="        for send, items in held[1:]:\n",
        test=_CLIENT + "test_dedup_producer.py::test_nothing_is_sent_before_the_first_entry_is_acknowledged",
    ),
    Fault(
        name="first-entry-without-its-receipt-not-looked-for",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="partition.begin = partition.begin or self._begin()",
        new="partition.begin = partition.begin or self.first_entry",
        test=_CLIENT + "test_dedup_producer.py::test_the_first_entry_is_known_where_its_receipt_was_lost",
    ),
    # ---- the search
    Fault(
        name="rows-of-another-write-found",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="            run.write,\n",
        new="            origin.write,\n",
        test=_CLIENT + "test_dedup_replays.py::test_rows_that_two_writes_have_are_stored_twice",
    ),
    Fault(
        name="earlier-write-of-the-micro-batch-taken-for-lost-rows",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="self._has_older |= (origin.batch, origin.write) < (run.batch, run.write)",
        new="self._has_older |= origin.batch < run.batch",
        test=_CLIENT + "test_dedup_replays.py::test_rows_that_two_writes_have_are_stored_twice",
    ),
    Fault(
        name="ids-of-other-writes-waited-for",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="            if origin.task == run.task:\n",
        new="            if self.is_own(origin):\n",
        test=_CLIENT + "test_dedup_replays.py::test_each_write_of_a_replay_finds_its_own_rows",
    ),
    Fault(
        name="hidden-rows-sent-again-silently",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="return RunVerdict.HIDDEN if is_hidden else RunVerdict.NOTHING",
        new="return RunVerdict.NOTHING",
        test=_CLIENT + "test_dedup_replays.py::test_rows_that_are_hidden_are_not_sent_again_silently",
    ),
    Fault(
        name="search-goes-on-to-the-topic-s-beginning",
        file="pulsar_spark/client/reading/backward_search.py",
        old="            if self._wanted.is_passed:\n                return\n            end = start\n",
        new="            end = start\n",
        test="tests/client/reading/test_backward_search.py::test_the_search_ends_where_it_is_said_to",
    ),
    Fault(
        name="steps-of-a-search-not-limited",
        file="pulsar_spark/client/reading/backward_search.py",
        old="islice(positions, max_steps)",
        new="islice(positions, None)",
        test="tests/client/reading/test_backward_search.py::test_not_more_steps_than_allowed",
    ),
    Fault(
        name="hidden-entries-waited-for-as-if-they-were-being-written",
        file="pulsar_spark/client/reading/backward_search.py",
        old="(self._deadline if end < stored.whole_entry else patience).passed",
        new="patience.passed",
        test="tests/client/reading/test_backward_search.py::"
        "test_an_entry_that_becomes_visible_later_is_waited_for",
    ),
    Fault(
        name="copy-that-is-not-replicated-taken-for-a-row",
        file="pulsar_spark/client/reading/stored_run.py",
        old="entries.texts(EntryField.REPLICATE_TO)",
        new="entries.texts(EntryField.REPLICATED_FROM)",
        test=_CLIENT + "test_dedup_producer.py::test_a_copy_that_is_not_replicated_does_not_count",
    ),
    Fault(
        name="version-of-what-is-stored-not-read",
        file="pulsar_spark/client/reading/stored_run.py",
        old="            found.version = int(versions[0])\n",
        new="            pass\n",
        test=_CLIENT + "test_producer_schemas.py::test_rows_of_the_same_version_are_left_out",
    ),
    Fault(
        name="schema-version-of-the-last-partition",
        file="pulsar_spark/client/writing/dedup.py",
        old="key=lambda each: each.number)",
        new="key=lambda each: -each.number)",
        test=_CLIENT + "test_producer_schemas.py::test_the_version_is_that_of_the_first_partition_with_rows",
    ),
    # ---- the comparison
    Fault(
        name="stored-row-found-twice",
        file="pulsar_spark/protocol/replay/stored_rows.py",
        old="        np.add.at(self._taken, at[is_same], 1)\n",
        new="",
        test=_CLIENT + "test_dedup_producer.py::test_equal_rows_are_stored_as_often_as_they_come",
    ),
    Fault(
        name="last-row-of-a-run-that-differs-not-told-of",
        file="pulsar_spark/protocol/replay/stored_rows.py",
        old="(self._through <= taken)",
        new="(self._through < taken)",
        test=_CLIENT + "test_dedup_producer.py::test_rows_that_differ_are_told_of",
    ),
    Fault(
        name="rows-looked-for-in-their-own-partition-only",
        file="pulsar_spark/protocol/replay/stored_rows.py",
        old="        if not found.all():\n            self.read_rest()\n",
        new="",
        test=_CLIENT + "test_dedup_replays.py::test_rows_are_found_in_other_partitions",
    ),
    Fault(
        name="row-compared-by-what-its-neighbours-have",
        file="pulsar_spark/protocol/replay/stored_rows.py",
        old='b"" if version < 0 and at < 0 else b"',
        new='b"',
        test=_CLIENT + "test_dedup_replays.py::test_rows_of_all_kinds_are_stored_once",
    ),
    Fault(
        name="time-of-delivery-not-compared",
        file="pulsar_spark/client/reading/stored_run.py",
        old="return np.where(has, times, -1)",
        new="return np.full(len(times), -1)",
        test=_CLIENT + "test_dedup_replays.py::test_rows_of_all_kinds_are_stored_once",
    ),
    # ---- what is told, and what is an error
    Fault(
        name="strict-task-writes-rows-that-differ",
        file="pulsar_spark/client/writing/dedup.py",
        old="if self.strict and is_new.any() and run.stored.differing(run.rows):",
        new="if not self.required and is_new.any() and run.stored.differing(run.rows):",
        test=_CLIENT + "test_dedup_producer.py::test_a_strict_task_sends_none_of_the_rows_that_differ",
    ),
    Fault(
        name="strict-task-sends-what-cannot-be-compared",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="        if self.strict:\n            raise self.duplicates(topic, text,",
        new="        if not self.required:\n            raise self.duplicates(topic, text,",
        test=_CLIENT + "test_dedup_replays.py::test_rows_that_are_hidden_are_not_sent_again_silently",
    ),
    Fault(
        name="duplicates-of-a-partition-without-rows-not-counted",
        file="pulsar_spark/client/writing/dedup.py",
        old="if stored or twice:",
        new="if stored:",
        test=_CLIENT + "test_dedup_replays.py::test_rows_that_are_hidden_are_not_sent_again_silently[0]",
    ),
    Fault(
        name="name-that-others-have-used-up-kept",
        file="pulsar_spark/client/writing/dedup_producer.py",
        old="if last <= _MAX_LAST_ID:",
        new="if last <= _MAX_LAST_ID << 1:",
        test=_CLIENT + "test_dedup_producer.py::test_a_name_that_somebody_else_has_used_keeps_nothing_out",
    ),
    # ---- the sink
    Fault(
        name="micro-batches-share-sequence-ids",
        file="pulsar_spark/protocol/replay/task_ids.py",
        old="return (batch + 1) * IDS_PER_BATCH",
        new="return IDS_PER_BATCH",
        test="tests/protocol/replay/test_task_ids.py::test_ids_of_a_micro_batch_begin_in_the_first_half_of_its_ids",
    ),
    Fault(
        name="all-ids-taken-for-the-querys",
        file="pulsar_spark/protocol/replay/task_ids.py",
        old="< _OWN_IDS",
        new="< IDS_PER_BATCH",
        test="tests/protocol/replay/test_task_ids.py::test_ids_that_may_be_the_querys",
    ),
    Fault(
        name="ids-of-somebody-else-taken-for-deleted-entries",
        file="pulsar_spark/protocol/replay/run_search.py",
        old="if self._may_be_own and not self._has_older:",
        new="if not self._has_older:",
        test="tests/protocol/replay/test_run_search.py::test_all_verdicts",
    ),
    Fault(
        name="producer-names-tell-the-secret",
        file="pulsar_spark/spark/sink/delivery.py",
        old='digest = hashlib.sha256(b"producer name " + batch.query.encode()).hexdigest()',
        new="digest = query_secret(batch.query).hex()",
        test="tests/spark/sink/test_delivery.py::test_names_of_producers_do_not_tell_the_secret",
    ),
    Fault(
        name="encrypted-rows-not-decrypted-in-a-replay",
        file="pulsar_spark/spark/sink/delivery.py",
        old="decryptor=None if options.encryption is None else own_decryptor(options.encryption),",
        new="decryptor=None,",
        test="tests/spark/sink/test_delivery.py::"
        "test_encrypted_rows_are_compared_with_what_the_keys_of_the_sink_decrypt",
    ),
    Fault(
        name="second-write-of-a-micro-batch-taken-for-the-first",
        file="pulsar_spark/spark/sink/write_numbers.py",
        old="numbers[str(topic)] = _next(numbers, topic) + 1",
        new="numbers.setdefault(str(topic), 0)",
        test="tests/spark/sink/test_write_numbers.py::test_each_write_to_a_topic_has_the_next_number",
    ),
    Fault(
        name="write-of-foreachbatch-not-counted",
        file="pulsar_spark/spark/sink/driver.py",
        old="if batch is None and of_batch is not None:",
        new="if batch is not None and of_batch is not None:",
        test="tests/spark/sink/test_driver.py::test_a_write_of_a_micro_batch_is_counted_once",
    ),
    Fault(
        name="comparison-not-finished",
        file="pulsar_spark/spark/sink/topic_writers.py",
        old="            self._dedup.finish()\n",
        new="            pass\n",
        test="tests/spark/sink/test_topic_writers.py::test_a_task_is_finished_when_all_is_acknowledged",
    ),
    Fault(
        name="what-others-stored-counted-as-rows-of-other-tasks",
        file="pulsar_spark/spark/sink/other_tasks.py",
        old="topic: count_stored_run(client, topic, RunToFind(task, known[0].secret, each, True, True))",
        new="topic: each - first_sequence_id(origin.batch) + 1",
        test="tests/spark/sink/test_other_tasks.py::"
        "test_rows_of_tasks_that_are_no_more_are_found_by_their_origins",
    ),
)
