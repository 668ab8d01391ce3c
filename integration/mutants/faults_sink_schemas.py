"""Faults of the sink where a schema makes the values: which one is chosen, and what is written by it."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="place-of-the-key-not-compared",
        file="pulsar_spark/protocol/writing/schema_choice.py",
        old="if rows.encoding is not None and is_separated",
        new="if rows.encoding is None and is_separated",
        test="tests/protocol/writing/test_schema_choice.py::test_the_place_of_the_key_is_the_topics",
    ),
    Fault(
        name="schema-registered-that-may-not-be",
        file="pulsar_spark/protocol/writing/schema_choice.py",
        old='        if not may_register:\n            raise SchemaError(\n                f"{misfit.what}',
        new='        if kind is None:\n            raise SchemaError(\n                f"{misfit.what}',
        test="tests/protocol/writing/test_schema_choice.py::"
        "test_columns_without_a_field_become_fields_behind_the_others",
    ),
    Fault(
        name="new-key-of-a-key-value-schema-not-registered",
        file="pulsar_spark/protocol/writing/schema_choice.py",
        old="    if not (new_key.is_new or new_value.is_new):\n",
        new="    if not new_value.is_new:\n",
        test="tests/protocol/writing/test_schema_choice.py::test_each_part_keeps_its_own_schema_and_may_get_fields",
    ),
    Fault(
        name="schema-chosen-anew-for-ever",
        file="pulsar_spark/client/writing/row_schema.py",
        old="if latest == before or choices == _MAX_CHOICES:",
        new="if latest == before:",
        test="tests/client/writing/test_row_schema.py::test_it_is_not_chosen_anew_for_ever",
    ),
    Fault(
        name="schema-of-others-not-looked-at-after-a-refusal",
        file="pulsar_spark/client/writing/row_schema.py",
        old="if latest == before or choices == _MAX_CHOICES:",
        new="if latest is not before:",
        test="tests/client/writing/test_row_schema.py::test_what_others_register_at_the_same_time_is_no_error",
    ),
    Fault(
        name="replay-written-by-the-latest-version",
        file="pulsar_spark/spark/sink/topic_encoders.py",
        old="            if version is not None and version != self._encoders.schema(topic).version:\n",
        new="            if version is None and version != self._encoders.schema(topic).version:\n",
        test="tests/spark/sink/test_topic_encoders.py::"
        "test_a_replay_goes_back_to_the_version_of_what_is_stored",
    ),
    Fault(
        name="replay-sent-with-the-latest-version",
        file="pulsar_spark/spark/sink/topic_encoders.py",
        old="        self._writers.close(topic)\n",
        new="",
        test="tests/spark/sink/test_topic_encoders.py::"
        "test_a_replay_goes_back_to_the_version_of_what_is_stored",
    ),
    Fault(
        name="deletion-written-as-a-record",
        file="pulsar_spark/values/encode/tombstones.py",
        old="EncodedValues(with_nulls(encoded.values, ~has), encoded.keys)",
        new="EncodedValues(encoded.values, encoded.keys)",
        test="tests/values/encode/test_tombstones.py::test_null_records_are_tombstones",
    ),
    Fault(
        name="key-of-a-separated-schema-not-written",
        file="pulsar_spark/spark/rows/write.py",
        old="                columns = replace(columns, key=encoded.keys)\n",
        new="",
        test="tests/spark/rows/test_write.py::test_a_schema_may_make_the_keys",
    ),
    Fault(
        name="rows-of-a-topic-encoded-in-another-order",
        file="pulsar_spark/spark/rows/write.py",
        old="own = None if rows is None else rows.take(indexes)",
        new="own = None if rows is None else rows.slice(0, len(indexes))",
        test="tests/spark/rows/test_write.py::test_each_topics_rows_are_given_to_its_encoder",
    ),
)
