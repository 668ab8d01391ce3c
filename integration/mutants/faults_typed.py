"""Faults of reading values by their schema: versions, columns, and what becomes of bad rows."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="rows-of-versions-not-put-back-in-order",
        file="pulsar_spark/client/reading/typed_values.py",
        old="return pa.concat_arrays(columns).take(pa.array(place)),",
        new="return pa.concat_arrays(columns),",
        test="tests/client/reading/test_typed_values.py::"
        "test_older_and_newer_versions_interleaved_keep_their_order",
    ),
    Fault(
        name="bad-rows-not-put-back-in-order",
        file="pulsar_spark/client/reading/typed_values.py",
        old="is_bad = np.concatenate(bad)[place]",
        new="is_bad = np.concatenate(bad)",
        test="tests/client/reading/test_typed_values.py::test_a_version_that_was_deleted",
    ),
    Fault(
        name="tombstone-without-a-version-is-bad",
        file="pulsar_spark/client/reading/typed_values.py",
        old="is_bad: Flags = (values.is_valid().to_numpy(zero_copy_only=False)) | (",
        new="is_bad: Flags = np.ones(len(values), np.bool_) | (",
        test="tests/client/reading/test_typed_values.py::"
        "test_tombstones_that_nothing_reads_are_rows_of_nulls",
    ),
    Fault(
        name="older-version-with-more-fields-ends-the-query",
        file="pulsar_spark/client/reading/typed_values.py",
        old="if writer is not None and self._refuse_changes and is_newer:",
        new="if writer is not None and self._refuse_changes:",
        test="tests/client/reading/test_typed_values.py::test_an_older_version_with_more_fields_does_not",
    ),
    Fault(
        name="fields-added-within-fields-are-missed",
        file="pulsar_spark/client/reading/typed_values.py",
        old='yield from changed_fields(names[each.name], each.type, f"{path}{each.name}.")',
        new="pass",
        test="tests/client/reading/test_typed_values.py::test_changed_fields_are_found_at_any_depth",
    ),
    Fault(
        name="symbols-added-to-an-enum-are-missed",
        file="pulsar_spark/client/reading/typed_values.py",
        old="            changes += formats.new_values(writer, self._own or writer)\n",
        new="",
        test="tests/client/reading/test_typed_values.py::"
        "test_a_newer_version_whose_values_the_columns_cannot_hold_ends_the_read",
    ),
    Fault(
        name="topics-read-by-the-schema-of-the-first",
        file="pulsar_spark/client/reading/typed_values.py",
        old="(self._own or writer, self._reader.schema), self._target",
        new="[self._reader.schema], self._target",
        test="tests/client/reading/test_typed_values.py::test_each_topic_is_read_by_a_schema_of_its_own",
    ),
    Fault(
        name="versions-of-an-earlier-load-used-again",
        file="pulsar_spark/spark/row_plan.py",
        old='load=f"{self.reader.load}/{ledger}"',
        new='load=f"/{ledger}"',
        test="tests/spark/test_row_plan.py::test_a_load_uses_no_versions_that_an_earlier_one_found",
    ),
    Fault(
        name="versions-of-a-deleted-topic-used-for-the-new-one",
        file="pulsar_spark/spark/row_plan.py",
        old='load=f"{self.reader.load}/{ledger}"',
        new="load=self.reader.load",
        test="tests/spark/test_row_plan.py::"
        "test_a_topic_that_is_made_anew_under_a_read_is_read_by_its_own_versions",
    ),
    Fault(
        name="rows-sent-again-by-the-version-of-a-deleted-topic",
        file="pulsar_spark/protocol/writing/stored_ids.py",
        old="self._dropped_to < entry.highest_sequence_id <= self._old_version_to",
        new="False",
        test="tests/protocol/writing/test_partition_writer.py::"
        "test_what_is_pending_is_not_sent_by_a_number_that_is_another_schema_now",
    ),
    Fault(
        name="made-up-versions-remembered-without-end",
        file="pulsar_spark/client/reading/typed_values.py",
        old="            self._readers.clear()\n",
        new="            pass\n",
        test="tests/client/reading/test_typed_values.py::"
        "test_made_up_versions_are_asked_for_together_and_not_remembered_without_end",
    ),
    Fault(
        name="schema-of-a-registry-read-as-the-brokers",
        file="pulsar_spark/client/reading/schema_versions.py",
        old="if any(flags.true_count for flags in has_id):",
        new="if False:",
        test="tests/client/reading/test_schema_versions.py::"
        "test_a_message_without_a_number_has_words_that_say_why",
    ),
    Fault(
        name="bad-row-given-as-nulls-in-failfast",
        file="pulsar_spark/spark/rows/values.py",
        old="                raise first\n",
        new='                fate = ""\n',
        test="tests/spark/rows/test_values.py::test_the_first_bad_row_ends_the_read",
    ),
    Fault(
        name="wrong-rows-left-out-of-later-parts",
        file="pulsar_spark/spark/rows/read.py",
        old="left_out[begin:end]",
        new="left_out[: end - begin]",
        test="tests/spark/rows/test_values.py::test_bad_rows_may_be_left_out",
    ),
    Fault(
        name="column-that-may-not-be-null-accepted",
        file="pulsar_spark/spark/rows/schema.py",
        old="if not field.nullable or _has_not_null(field.dataType):",
        new="if not field.nullable:",
        test="tests/spark/rows/test_schema.py::test_a_projection_that_cannot_be",
    ),
    Fault(
        name="topics-of-different-schemas-read-by-the-first",
        file="pulsar_spark/spark/row_plan.py",
        old="        if all(_is_read_by(reader, each, target, wanted) for each in schemas):\n",
        new="        if found:\n",
        test="tests/spark/test_row_plan.py::test_topics_of_different_schemas",
    ),
    Fault(
        name="schema-asked-for-again-after-load",
        file="pulsar_spark/spark/row_plan.py",
        old="    if known is None:\n        known = ",
        new="    if options:\n        known = ",
        test="tests/spark/test_row_plan.py::test_what_was_found_out_is_not_asked_again",
    ),
    Fault(
        name="reader-of-a-failed-task-left-to-the-garbage-collector",
        file="pulsar_spark/client/reading/entry_range.py",
        old="with Consumer(client, topic, subscription, permits) as consumer:",
        new="for consumer in [Consumer(client, topic, subscription, permits)]:",
        test="tests/spark/test_reader.py::test_nothing_is_left_to_the_garbage_collector",
    ),
)
