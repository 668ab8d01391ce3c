"""Faults of kinds of schemas: payloads that are taken for other values, or for values at all."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="primitive-of-another-length-taken",
        file="pulsar_spark/values/primitives.py",
        old="    has = np.diff(offsets) == width\n",
        new="    has = np.diff(offsets) >= width\n",
        test="tests/values/test_primitives.py::test_a_bad_value_is_told_and_its_neighbours_are_whole",
    ),
    Fault(
        name="time-beyond-microseconds-wraps",
        file="pulsar_spark/values/primitives.py",
        old="    return micros, ~is_near | has_wrapped\n",
        new="    return micros, ~is_near\n",
        test="tests/values/test_primitives.py::test_a_bad_value_is_told_and_its_neighbours_are_whole",
    ),
    Fault(
        name="tombstone-with-bytes-is-bad",
        file="pulsar_spark/values/primitives.py",
        old="    is_bad = is_valid & ~has\n",
        new="    is_bad = ~has\n",
        test="tests/values/test_primitives.py::test_tombstones_empty_and_sliced_arrays",
    ),
    Fault(
        name="bytes-left-over-after-inline-parts",
        file="pulsar_spark/values/key_value.py",
        old="np.maximum(value_size, 0) == end)",
        new="np.maximum(value_size, 0) <= end)",
        test="tests/values/test_key_value.py::test_a_bad_layout_is_told_and_its_neighbours_are_whole",
    ),
    Fault(
        name="inline-payload-taken-as-separated",
        file="pulsar_spark/values/key_value.py",
        old="            are_inline[rows] = has_part & ~is_bad\n",
        new="            are_inline[rows] = False\n",
        test="tests/values/test_key_value.py"
        "::test_an_inline_payload_without_a_key_is_bad_where_parts_are_separated",
    ),
    Fault(
        name="zeros-of-a-number-taken-as-inline",
        file="pulsar_spark/values/key_value.py",
        old="has_part & ~is_bad",
        new="has_part",
        test="tests/values/test_key_value.py::test_numbers_that_look_like_lengths_are_no_inline_payloads",
    ),
    Fault(
        name="one-bad-part-forgotten",
        file="pulsar_spark/values/key_value.py",
        old="                is_bad |= found.is_bad\n",
        new="                is_bad = found.is_bad\n",
        test="tests/values/test_key_value.py::test_any_bytes_are_a_row_or_bad",
    ),
    Fault(
        name="first-of-a-oneof-kept",
        file="pulsar_spark/values/protobuf/plan.py",
        old="            _join_oneof(own, defined.oneof_index)\n",
        new="            pass\n",
        test="tests/values/protobuf/test_protobuf_native.py::test_of_a_oneof_the_last_one_counts",
    ),
    Fault(
        name="first-entry-of-a-map-kept",
        file="pulsar_spark/values/protobuf/readers.py",
        old="        if len(last) < len(rows):\n",
        new="        if len(last) > len(rows):\n",
        test="tests/values/protobuf/test_protobuf_native.py::test_of_entries_with_the_same_key_the_last_one_counts",
    ),
    Fault(
        name="bad-item-forgotten",
        file="pulsar_spark/values/protobuf/readers.py",
        old="    rows[np.repeat(np.arange(len(sizes)), sizes)[is_bad]] = True\n",
        new="",
        test="tests/values/protobuf/test_protobuf_native.py::test_a_bad_row_is_told_and_its_neighbours_are_whole",
    ),
    Fault(
        name="required-field-may-lack",
        file="pulsar_spark/values/protobuf/readers.py",
        old="        if self.is_required:\n",
        new="        if False:\n",
        test="tests/values/protobuf/test_protobuf_native.py::test_a_bad_row_is_told_and_its_neighbours_are_whole",
    ),
    Fault(
        name="message-within-itself-unrolled",
        file="pulsar_spark/values/protobuf/plan.py",
        old="if message.name in place.above or len(",
        new="if len(",
        test="tests/values/protobuf/test_protobuf_native.py"
        "::test_a_message_within_itself_is_refused_by_the_field_s_name",
    ),
)
