"""Faults of the Spark layer: options, planning, rows and the sink."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="start-position-excludes-its-message",
        file="pulsar_spark/spark/options/positions.py",
        old="return found if end else found.previous",
        new="return found",
        test="tests/spark/options/test_positions.py::test_starts_and_ends_are_inclusive",
    ),
    Fault(
        name="time-rounded-down",
        file="pulsar_spark/spark/options/positions.py",
        old="ms = -((_EPOCH - aware) // timedelta(milliseconds=1))",
        new="ms = (aware - _EPOCH) // timedelta(milliseconds=1)",
        test="tests/spark/options/test_positions.py::test_times",
    ),
    Fault(
        name="position-of-what-is-not-read-ignored",
        file="pulsar_spark/spark/options/positions.py",
        old="for name in sorted(self.named.keys() - set(names.values())):",
        new="for name in sorted(set(names.values()) - self.named.keys()):",
        test="tests/spark/options/test_positions.py::test_exactly_the_partitions_that_are_read_are_named",
    ),
    Fault(
        name="limit-of-zero-accepted",
        file="pulsar_spark/spark/options/parsers.py",
        old='if not re.fullmatch(r"\\d{1,9}", text) or int(text) < minimum:',
        new='if not re.fullmatch(r"\\d{1,9}", text):',
        test="tests/spark/options/test_parsers.py::test_the_minimum_is_allowed_and_less_is_not",
    ),
    Fault(
        name="offsets-in-any-order",
        file="pulsar_spark/spark/plan/offsets.py",
        old="for topic in sorted(positions, key=lambda name: (str(name.base), name.partition)):",
        new="for topic in positions:",
        test="tests/spark/plan/test_offsets.py::"
        "test_keys_are_in_one_fixed_order_whatever_the_order_of_the_positions",
    ),
    Fault(
        name="newer-checkpoint-read-in-part",
        file="pulsar_spark/spark/plan/offsets.py",
        old='newer = sorted(data.keys() - {"subscription", "topics"})',
        new="newer: list[str] = []",
        test="tests/spark/plan/test_offsets.py::test_what_a_newer_version_added_is_not_ignored",
    ),
    Fault(
        name="first-entry-too-large-for-its-share-starves",
        file="pulsar_spark/spark/plan/admission.py",
        old="if last is not None and not share.holds(more, larger):",
        new="if not share.holds(more, larger):",
        test="tests/spark/plan/test_admission.py::test_a_byte_limit_of_one_batch",
    ),
    Fault(
        name="subscription-moved-while-stopped-taken-for-fine",
        file="pulsar_spark/spark/plan/data_loss.py",
        old="if mark_delete.is_message and mark_delete > position.last_whole_entry:",
        new="if mark_delete.is_message and mark_delete < position:",
        test="tests/spark/plan/test_data_loss.py::test_a_partition_at_restart",
    ),
    Fault(
        name="loss-taken-for-a-move",
        file="pulsar_spark/spark/plan/data_loss.py",
        old="if begin <= position.last_whole_entry:",
        new="if begin <= position.next_entry:",
        test="tests/spark/plan/test_data_loss.py::test_a_partition_under_the_running_query",
    ),
    Fault(
        name="acknowledged-before-it-is-processed",
        file="pulsar_spark/spark/plan/partition.py",
        old="return None if self.position is None else min(self.position, self.last).last_whole_entry",
        new="return None if self.position is None else self.last",
        test="tests/spark/plan/test_stream.py::test_nothing_is_acknowledged_before_it_is_checkpointed",
    ),
    Fault(
        name="chunks-acknowledged-before-they-expire",
        file="pulsar_spark/spark/plan/partition.py",
        old="while newest.time_ms - held[0].time_ms > expire * 1000:",
        new="while newest is not held[0]:",
        test="tests/spark/plan/test_partition.py::test_no_message_that_may_complete_loses_its_beginning",
    ),
    Fault(
        name="split-ranges-leave-an-entry-out",
        file="pulsar_spark/spark/plan/ranges.py",
        old="for start, end in zip([each.start, *borders], ends, strict=True)",
        new="for start, end in zip([each.start, *(one.next_entry for one in borders)], ends, strict=True)",
        test="tests/spark/plan/test_ranges.py::test_the_pieces_are_the_ranges",
    ),
    Fault(
        name="replayed-batch-0-begins-too-late",
        file="pulsar_spark/spark/plan/ranges.py",
        old="        if anew:\n            first = min(first, opened)\n",
        new="",
        test="tests/spark/plan/test_ranges.py::"
        "test_a_batch_0_that_is_planned_again_begins_where_its_own_subscription_stands",
    ),
    Fault(
        name="ends-never-asked-again-without-a-watch",
        file="pulsar_spark/spark/plan/ends.py",
        old="return has_news is None or has_news or now >= self.ask_anyway_at",
        new="return bool(has_news) or now >= self.ask_anyway_at > 0",
        test="tests/spark/plan/test_ends.py::test_when_a_partition_is_asked",
    ),
    Fault(
        name="first-transaction-committed-before-the-intent",
        file="pulsar_spark/spark/sink/commit_plan.py",
        old="return replace(plan, stage=CommitStage.WRITE_INTENT, intent=intent)",
        new="return replace(plan, stage=CommitStage.COMMIT_FIRST, intent=intent)",
        test="tests/spark/sink/test_transactional.py::"
        "test_the_intent_and_all_markers_are_durable_before_the_first_commit",
    ),
    Fault(
        name="record-of-commits-believed-without-a-signature",
        file="pulsar_spark/spark/sink/commit_records.py",
        old="        if self._key is not None and not is_signed:\n            return None\n",
        new="",
        test="tests/spark/sink/test_commit_log.py::test_what_is_made_up_changes_nothing_where_there_is_a_key",
    ),
    Fault(
        name="copied-intent-taken-for-the-last-one",
        file="pulsar_spark/spark/sink/commit_records.py",
        old="    return last is None or last.first == intent.after\n",
        new="    return True\n",
        test="tests/spark/sink/test_commit_log.py::test_a_copy_of_any_record_changes_nothing",
    ),
    Fault(
        name="copied-intent-left-before-the-last-one",
        file="pulsar_spark/spark/sink/commit_log.py",
        old="            before = stored.position\n",
        new="            before = min(before, stored.position)\n",
        test="tests/spark/sink/test_commit_log.py::test_a_copied_intent_is_never_the_first_that_is_read",
    ),
    Fault(
        name="log-of-an-older-version-taken-for-a-new-one",
        file="pulsar_spark/spark/sink/commit_log.py",
        old="if self.state.intent is None and error is not None:",
        new="if self.state.intent is not None and error is not None:",
        test="tests/spark/sink/test_commit_log.py::test_the_log_of_an_older_version_stops_the_commit",
    ),
    Fault(
        name="marker-believed-outside-its-transaction",
        file="pulsar_spark/spark/sink/commit_log.py",
        old="stored.transaction != (record.transaction if isinstance(record, CommittedRecord) else None)",
        new="stored.transaction is not None and not isinstance(record, CommittedRecord)",
        test="tests/spark/sink/test_commit_log.py::"
        "test_a_copied_marker_is_no_proof_that_its_transaction_was_committed",
    ),
    Fault(
        name="records-released-that-are-still-needed",
        file="pulsar_spark/spark/sink/commit_log.py",
        old="if intent is not None and intent.batch >= self._batch:",
        new="if intent is not None and intent.batch > self._batch:",
        test="tests/spark/sink/test_commit_log.py::test_what_is_not_finished_makes_no_room",
    ),
    Fault(
        name="lost-records-of-commits-not-warned-of",
        file="pulsar_spark/spark/sink/commit_records.py",
        old="    if drivers_before == 0:\n",
        new="    if drivers_before >= 0:\n",
        test="tests/spark/sink/test_commit_log.py::"
        "test_a_batch_that_is_written_again_because_its_records_were_removed_is_warned_of",
    ),
    Fault(
        name="transactions-committed-without-markers",
        file="pulsar_spark/spark/sink/commit_plan.py",
        old="return plan._at(CommitStage.MARK)",
        new="return plan._at(CommitStage.COMMIT_FIRST)",
        test="tests/spark/sink/test_commit_plan.py::test_each_answer_has_its_next_stage",
    ),
    Fault(
        name="committed-micro-batch-written-again",
        file="pulsar_spark/spark/sink/commit_plan.py",
        old="return plan._at(then if plan.first in plan.log.committed else otherwise)",
        new="return plan._at(otherwise)",
        test="tests/spark/sink/test_transactional.py::test_a_batch_that_was_committed_is_not_written_again",
    ),
    Fault(
        name="begun-commit-aborted",
        file="pulsar_spark/spark/sink/commit_plan.py",
        old="return sorted(log.opened.union(written).difference(begun))",
        new="return sorted(log.opened.union(written))",
        test="tests/spark/sink/test_commit_plan.py::test_what_a_commit_has_begun_is_not_aborted",
    ),
    Fault(
        name="failed-task-s-transaction-left-open",
        file="pulsar_spark/spark/sink/transactional.py",
        old="    except BaseException:\n        _try_abort(transactions, [transaction])\n        raise\n",
        new="    except BaseException:\n        raise\n",
        test="tests/spark/sink/test_transactional.py::test_a_task_that_fails_aborts_its_transaction",
    ),
    Fault(
        name="writer-closed-without-flush",
        file="pulsar_spark/spark/sink/topic_writers.py",
        old="        writer.flush()\n",
        new="",
        test="tests/spark/sink/test_topic_writers.py::"
        "test_a_writer_that_makes_room_is_flushed_before_it_is_closed",
    ),
    Fault(
        name="rows-held-back-in-closed-topics-never-sent",
        file="pulsar_spark/spark/sink/topic_writers.py",
        old="                self.of(topic).finish()\n",
        new="                self.of(topic)\n",
        test="tests/spark/sink/test_topic_writers.py::test_each_topic_is_finished_though_few_may_be_open",
    ),
    Fault(
        name="task-reports-before-all-is-acknowledged",
        file="pulsar_spark/spark/sink/task.py",
        old="            writers.finish()\n",
        new="",
        test="tests/spark/sink/test_task.py::"
        "test_rows_are_sent_to_their_topics_and_reported_when_all_is_acknowledged",
    ),
    Fault(
        name="digest-of-plain-content-in-encrypted-entries",
        file="pulsar_spark/spark/sink/delivery.py",
        old="if delivery is not None or has_sequence_ids or is_encrypted or not is_micro_batch:",
        new="if delivery is not None or has_sequence_ids or not is_micro_batch:",
        test="tests/spark/sink/test_delivery.py::test_the_decision",
    ),
    Fault(
        name="event-time-of-zero-read-as-1970",
        file="pulsar_spark/spark/rows/metadata_columns.py",
        old="    times = pc.if_else(pc.equal(times, 0), pa.scalar(None, pa.int64()), times)\n",
        new="",
        test="tests/spark/rows/test_metadata_columns.py::"
        "test_times_that_do_not_fit_are_the_nearest_that_do_and_an_event_time_of_0_is_unset",
    ),
    Fault(
        name="rows-of-a-topic-reordered",
        file="pulsar_spark/spark/rows/write.py",
        old='in_order = np.argsort(number_of_row, kind="stable")',
        new="in_order = np.lexsort((-np.arange(len(number_of_row)), number_of_row))",
        test="tests/spark/rows/test_write.py::test_rows_go_to_the_topics_they_name_in_their_order",
    ),
    Fault(
        name="upsert-of-a-row-without-a-key-accepted",
        file="pulsar_spark/spark/rows/write.py",
        old="if self.upsert and columns.key.null_count:",
        new="if self.upsert and columns.key is None:",
        test="tests/spark/rows/test_write.py::test_upserts_need_keys",
    ),
    Fault(
        name="large-record-batch-cut-with-a-gap",
        file="pulsar_spark/spark/rows/read.py",
        old="        first += count\n",
        new="        first += count + 1\n",
        test="tests/spark/rows/test_read.py::test_large_entries_are_split_by_rows",
    ),
    Fault(
        name="rows-of-a-huge-batch-given-twice",
        file="pulsar_spark/spark/rows/read.py",
        old="        first += count\n",
        new="        first += max(1, count - 1)\n",
        test="tests/spark/rows/test_read.py::test_large_entries_are_split_by_rows",
    ),
    Fault(
        name="unset-event-time-becomes-1970",
        file="pulsar_spark/spark/rows/metadata_columns.py",
        old="    times = pc.if_else(pc.equal(times, 0), pa.scalar(None, pa.int64()), times)\n",
        new="",
        test="tests/spark/rows/test_metadata_columns.py::test_times_that_do_not_fit_are_the_nearest_that_do_and_an_event_time_of_0_is_unset",
    ),
    Fault(
        name="only-the-first-task-of-a-process-looks-for-what-is-stored",
        file="pulsar_spark/spark/sink/micro_batch.py",
        old="        return "
        "self.number <= _first_batches.setdefault(self.run, self.number) or self.is_retried\n",
        new="        is_first = self.run not in _first_batches\n"
        "        _first_batches[self.run] = self.number\n"
        "        return is_first or self.is_retried\n",
        test="tests/spark/sink/test_micro_batch.py::"
        "test_all_tasks_of_the_first_micro_batch_of_a_run_may_be_a_replay",
    ),
    Fault(
        name="possible-duplicates-of-other-tasks-not-reported",
        file="pulsar_spark/spark/sink/report.py",
        old="SentTotals(possible_duplicates=count)",
        new="SentTotals(possible_duplicates=0)",
        test="tests/spark/sink/test_report.py::test_what_may_be_there_twice_is_told_to_all",
    ),
)
