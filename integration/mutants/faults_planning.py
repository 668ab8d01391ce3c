"""Faults of planning and committing: ranges left out or read twice, commits too early or not at all."""

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
        name="loss-taken-for-a-move",
        file="pulsar_spark/spark/plan/data_loss.py",
        old="if stored.begin <= max(position.last_whole_entry, goes_on):",
        new="if stored.begin <= max(position.next_entry, goes_on):",
        test="tests/spark/plan/test_data_loss.py::test_a_partition_under_the_running_query",
    ),
    Fault(
        name="subscription-moved-over-a-micro-batch-not-noticed",
        file="pulsar_spark/spark/plan/data_loss.py",
        old="if not is_message or not mark_delete.is_message or mark_delete <= own:",
        new="if not is_message or not mark_delete.is_message or mark_delete <= position:",
        test="tests/spark/plan/test_data_loss.py::test_a_partition_under_the_running_query",
    ),
    Fault(
        name="begin-of-a-range-after-its-first-message",
        file="pulsar_spark/spark/plan/micro_batch.py",
        old="each._replace(begins=first.previous)",
        new="each._replace(begins=first)",
        test="tests/spark/plan/test_micro_batch.py::"
        "test_tasks_know_after_which_position_everything_is_stored",
    ),
    Fault(
        name="acknowledged-before-it-is-processed",
        file="pulsar_spark/spark/plan/partition.py",
        old="return None if self.position is None else min(self.position, self.last).last_whole_entry",
        new="return None if self.position is None else self.last",
        test="tests/spark/plan/test_stream_starts.py::test_nothing_is_acknowledged_before_it_is_checkpointed",
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
        name="range-left-out-of-shared-tasks",
        file="pulsar_spark/spark/plan/ranges.py",
        old="alone = [[place] for place, size in enumerate(sizes) if size >= share]",
        new="alone = [[place] for place, size in enumerate(sizes) if size > share]",
        test="tests/spark/plan/test_ranges.py::test_which_ranges_share_a_task",
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
        name="entry-taken-in-after-the-answer-forgotten",
        file="pulsar_spark/spark/plan/ends.py",
        old="            elif tail.reached <= known:\n",
        new="            else:\n",
        test="tests/spark/plan/test_ends.py::test_what_a_tail_took_in_after_an_answer_is_asked_for",
    ),
    Fault(
        name="end-of-a-ledger-acknowledged-without-a-look",
        file="pulsar_spark/spark/plan/partition.py",
        old="return done.ledger == self.acknowledged.ledger == self.last.ledger and done < self.last",
        new="return done.ledger == self.last.ledger",
        test="tests/spark/plan/test_partition.py::test_the_next_step_of_an_acknowledgement",
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
        name="record-of-commits-believed-without-a-signature",
        file="pulsar_spark/spark/sink/commit_records.py",
        old="        if self._key is not None and not hmac.compare_digest(",
        new="        if self._key is None and not hmac.compare_digest(",
        test="tests/spark/sink/test_commit_log.py::test_what_is_made_up_changes_nothing_where_there_is_a_key",
    ),
    Fault(
        name="records-released-that-are-still-needed",
        file="pulsar_spark/spark/sink/commit_log.py",
        old="if intent is not None and intent.batch >= self._batch:",
        new="if intent is not None and intent.batch > self._batch:",
        test="tests/spark/sink/test_commit_log.py::test_what_is_not_finished_makes_no_room",
    ),
    Fault(
        name="writer-closed-without-flush",
        file="pulsar_spark/spark/sink/topic_writers.py",
        old="        writer.flush()\n        self._closed",
        new="        self._closed",
        test="tests/spark/sink/test_topic_writers.py::"
        "test_a_writer_that_makes_room_is_flushed_before_it_is_closed",
    ),
    Fault(
        name="task-reports-before-all-is-acknowledged",
        file="pulsar_spark/spark/sink/task.py",
        old="        writers.finish()\n",
        new="",
        test="tests/spark/sink/test_task.py::"
        "test_rows_are_sent_to_their_topics_and_reported_when_all_is_acknowledged",
    ),
    Fault(
        name="large-record-batch-cut-with-a-gap",
        file="pulsar_spark/arrow/arrays.py",
        old="        first = stop\n",
        new="        first = stop + 1\n",
        test="tests/spark/rows/test_read.py::test_large_entries_are_split_by_rows",
    ),
    Fault(
        name="more-acknowledged-than-was-probed",
        file="pulsar_spark/spark/plan/subscription.py",
        old="positions[topic] = state.settle(expire) if state.has_chunks else entry",
        new="positions[topic] = state.settle(expire)",
        test="tests/spark/plan/test_chunk_probes.py::test_probes_for_chunks_without_an_answer_hold_nobody_up",
    ),
    Fault(
        name="seen-messages-forgotten-when-the-position-moves",
        file="pulsar_spark/spark/plan/loss_check.py",
        old="        state.see(state.last)\n",
        new="",
        test="tests/spark/plan/test_stream_positions.py::"
        "test_what_was_seen_and_waits_for_its_turn_is_loss_where_a_ledger_is_removed",
    ),
    Fault(
        name="answer-judged-by-later-acknowledgements",
        file="pulsar_spark/spark/plan/loss_check.py",
        old="asked=state.asked_before",
        new="asked=state.asked",
        test="tests/spark/plan/test_stream_positions.py::"
        "test_what_is_removed_before_an_acknowledgement_could_be_sent_is_loss",
    ),
    Fault(
        name="segment-read-before-what-it-follows",
        file="pulsar_spark/spark/plan/scalable/segments.py",
        old="                held.add(name)\n                older.append(segment)\n",
        new="                held.add(name)\n",
        test="tests/spark/plan/scalable/test_segments.py::test_random_histories",
    ),
    Fault(
        name="segment-done-before-its-last-message",
        file="pulsar_spark/spark/plan/scalable/segments.py",
        old="position.last_whole_entry >= final",
        new="position.last_whole_entry >= final.back(1)",
        test="tests/spark/plan/scalable/test_segments.py::"
        "test_children_are_held_until_the_last_entry_of_their_parent_is_processed",
    ),
    Fault(
        name="subscription-not-registered-after-a-restart",
        file="pulsar_spark/spark/plan/stream.py",
        old="            register(self._client, self._options, name)\n",
        new="",
        test="tests/spark/plan/scalable/test_topics.py::"
        "test_the_subscription_is_registered_by_each_run_and_removed_with_the_first_one",
    ),
    Fault(
        name="done-segment-left-before-its-acknowledgement",
        file="pulsar_spark/spark/plan/stream.py",
        old="if state.acknowledged >= state.last:",
        new="if True:",
        test="tests/spark/plan/scalable/test_topics.py::test_a_done_segment_is_acknowledged_by_a_later_run",
    ),
    Fault(
        name="time-searched-without-its-margin",
        file="pulsar_spark/protocol/reading/time_search.py",
        old="_first_late(probe, time_ms - margin_ms, first, last)",
        new="_first_late(probe, time_ms, first, last)",
        test="tests/protocol/reading/test_time_search.py::test_topics_at_the_margin",
    ),
    Fault(
        name="start-time-searched-again-after-a-restart",
        file="pulsar_spark/spark/plan/resolve.py",
        old="if is_in_time or search(MessageId.EARLIEST, begin) is not None:",
        new="if is_in_time:",
        test="tests/spark/plan/test_resolve.py::test_a_begin_after_the_first_one_in_time_leaves_nothing_out",
    ),
)
