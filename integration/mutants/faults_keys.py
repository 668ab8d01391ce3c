"""Faults of keys, of where rows go, and of batches of one key."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="key-of-one-odd-byte-taken-for-ascii",
        file="pulsar_spark/wire/columns/keys_and_texts.py",
        old="max(initial=0) <= 0x7F)",
        new="max(initial=0) <= 0x80)",
        test="tests/wire/columns/test_keys_and_texts.py::test_only_the_keys_of_a_slice_say_whether_they_are_base64",
    ),
    Fault(
        name="first-words-of-a-long-key-hashed-twice",
        file="pulsar_spark/protocol/writing/routing.py",
        old="words[start[row] + in_rounds :",
        new="words[start[row] :",
        test="tests/protocol/writing/test_routing.py::test_long_keys_among_short_ones_follow_murmur3_too",
    ),
    Fault(
        name="messages-of-two-keys-in-a-batch-of-one-key",
        file="pulsar_spark/protocol/writing/key_groups.py",
        old="(numbers.max() + 1) + numbers",
        new="(numbers.max() + 1) + numbers // 2",
        test="tests/protocol/writing/test_key_groups.py::test_groups_are_those_of_a_dictionary",
    ),
    Fault(
        name="ordering-key-of-a-message-not-looked-at",
        file="pulsar_spark/protocol/writing/key_groups.py",
        old="pc.coalesce(columns.ordering_key, columns.key)",
        new="pc.coalesce(columns.key, columns.ordering_key)",
        test="tests/client/writing/test_topic_writer_keys.py::test_the_ordering_key_wins",
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
        name="held-rows-keep-all-rows-of-a-send-in-memory",
        file="pulsar_spark/protocol/writing/key_groups.py",
        old="part.copy() if first > 0 and last == count else part",
        new="part",
        test="tests/protocol/writing/test_key_groups.py::test_what_is_held_does_not_keep_what_was_given_in_memory",
    ),
    Fault(
        name="window-of-keys-closed-by-the-portions-of-rows",
        file="pulsar_spark/protocol/writing/key_groups.py",
        old="if last < count or self._size >= self._max_bytes:",
        new="if last <= count:",
        test="tests/protocol/writing/test_key_groups.py::test_windows_are_the_same_in_whatever_portions_rows_come",
    ),
    Fault(
        name="open-batch-lost-before-batches-of-one-key",
        file="pulsar_spark/protocol/writing/batcher.py",
        old="closed = [] if opened is None else [opened]",
        new="closed: list[Batch] = []",
        test="tests/protocol/writing/test_batcher.py::test_groups_are_cut_one_by_one",
    ),
    Fault(
        name="many-messages-of-a-key-in-one-batch",
        file="pulsar_spark/protocol/writing/batcher.py",
        old="fits = (sizes <= self._max_bytes) & (counts <= self._max_messages)",
        new="fits = sizes <= self._max_bytes",
        test="tests/client/writing/test_topic_writer_keys.py::test_limits_of_batches_hold_for_each_key",
    ),
    Fault(
        name="rows-with-ids-of-two-keys-in-a-batch-of-one-key",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="begins |= begin_keys(columns, bounds)",
        new="pass",
        test="tests/client/writing/test_topic_writer_keys.py::"
        "test_rows_with_ids_keep_their_order_and_an_entry_ends_where_the_key_changes",
    ),
    Fault(
        name="entry-without-the-key-of-its-batch",
        file="pulsar_spark/protocol/writing/packer.py",
        old="        return first_message(body)\n",
        new="        return None\n",
        test="tests/protocol/writing/test_packer.py::test_a_batch_has_the_keys_of_its_first_message",
    ),
    Fault(
        name="key-of-an-encrypted-batch-shown",
        file="pulsar_spark/protocol/writing/packer.py",
        old="if self._encryption is not None and not self._key_based:",
        new="if not body and not self._key_based:",
        test="tests/protocol/writing/test_packer.py::"
        "test_no_key_is_shown_of_those_that_are_encrypted_unless_brokers_must_see_it",
    ),
    Fault(
        name="all-micro-batches-begin-at-one-partition",
        file="pulsar_spark/protocol/writing/routing.py",
        old="return (self.batch + self.batch // partitions + self.task) % partitions",
        new="return self.task % partitions",
        test="tests/protocol/writing/test_router.py::test_micro_batches_with_few_rows_reach_all_partitions_alike",
    ),
    Fault(
        name="rows-of-a-replay-begin-at-another-partition",
        file="pulsar_spark/client/writing/topic_writer.py",
        old="place, look_again = dedup.place, None",
        new="place, look_again = None, None",
        test="tests/client/writing/test_topic_writer_keys.py::"
        "test_rows_without_keys_go_to_the_same_partitions_in_each_run",
    ),
    Fault(
        name="keys-as-bytes-hashed-as-text",
        file="pulsar_spark/protocol/writing/routing.py",
        old="encode_keys(keys, as_bytes=key_bytes)",
        new="encode_keys(keys)",
        test="tests/protocol/writing/test_routing.py::test_keys_as_bytes_go_where_their_base64_text_goes",
    ),
    Fault(
        name="topic-of-the-row-before-that-of-the-option",
        file="pulsar_spark/spark/rows/write.py",
        old="if self.topic is not None:\n            yield",
        new="if TOPIC not in self.reserved:\n            yield",
        test="tests/spark/rows/test_write.py::test_the_option_wins_over_the_column",
    ),
    Fault(
        name="properties-after-a-null-one-given-to-another-row",
        file="pulsar_spark/spark/rows/write.py",
        old="offsets = held[offsets - first].astype(np.int32)",
        new="offsets = np.minimum(offsets - first, held[-1]).astype(np.int32)",
        test="tests/spark/rows/test_write.py::test_a_property_without_a_value_is_left_out",
    ),
)
