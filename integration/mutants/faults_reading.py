"""Faults of reading: rows that are skipped, read twice or acknowledged before they are safe."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="cumulative-ack-moves-back",
        file="pulsar_spark/client/consuming/consumer.py",
        old="if self._acked is None or message_id > self._acked:",
        new="if message_id != self._acked:",
        test="tests/client/consuming/test_consumer.py::test_an_ack_never_moves_back_and_is_sent_again",
    ),
    Fault(
        name="cumulative-ack-covers-the-next-entry",
        file="pulsar_spark/client/consuming/consumer.py",
        old="            self._acked = message_id\n",
        new="            self._acked = message_id.next_entry\n",
        test="tests/client/consuming/test_consumer.py::test_an_ack_never_moves_back_and_is_sent_again",
    ),
    Fault(
        name="refused-acknowledgement-taken-for-confirmed",
        file="pulsar_spark/client/consuming/consumer.py",
        old="            self._check_ack(command.ackResponse)\n            return message_id\n",
        new="            return message_id\n",
        test="tests/client/consuming/test_consumer.py::test_many_are_asked_without_waiting",
    ),
    Fault(
        name="part-of-an-entry-acknowledged-as-a-whole",
        file="pulsar_spark/ids.py",
        old="return self if self.batch_index < 0 else self.whole_entry.back(1)",
        new="return self.whole_entry",
        test="tests/test_ids.py::test_the_places_around_a_message",
    ),
    Fault(
        name="messages-of-a-lost-consumer-dropped-in-part",
        file="pulsar_spark/client/consuming/consumer_link.py",
        old="        was_lost = self.is_lost and not self._is_moved\n",
        new="        was_lost = self.is_lost and not self._is_moved\n        self.inbox._groups.clear()\n",
        test="tests/client/consuming/test_consumer_link.py::test_what_came_before_is_given_out_all_the_same",
    ),
    Fault(
        name="entry-read-twice-after-a-reconnect",
        file="pulsar_spark/client/consuming/consumer.py",
        old="        entries = _new_after(entries, self._link.last)\n",
        new="",
        test="tests/client/consuming/test_consumer.py::test_what_is_delivered_twice_is_given_out_once",
    ),
    Fault(
        name="entry-skipped-after-a-reconnect",
        file="pulsar_spark/client/consuming/subscription_options.py",
        old="MessageId(last.ledger, last.entry + 1)",
        new="MessageId(last.ledger, last.entry + 2)",
        test="tests/client/consuming/test_consumer.py::"
        "test_after_a_loss_it_goes_on_after_the_last_entry[5-cut]",
    ),
    Fault(
        name="seek-one-entry-too-far",
        file="pulsar_spark/client/consuming/consumer.py",
        old="            start = target\n",
        new="            start = target.next_entry\n",
        test="tests/client/consuming/test_consumer.py::test_a_seek_goes_on_from_its_target[2-options0]",
    ),
    Fault(
        name="entries-after-the-end-of-a-range-given",
        file="pulsar_spark/client/reading/entry_range.py",
        old="yield entries[:count]",
        new="yield entries",
        test="tests/client/reading/test_entry_range.py::test_all_after_the_start_up_to_and_with_the_end",
    ),
    Fault(
        name="last-entries-of-a-range-left-out",
        file="pulsar_spark/client/reading/decode.py",
        old="    if collected.rows:\n        yield from decoder.messages(*collected.take())\n",
        new="",
        test="tests/client/reading/test_decode.py::test_batches_and_singles_of_every_codec",
    ),
    Fault(
        name="message-at-the-start-position-read-again",
        file="pulsar_spark/client/reading/decode.py",
        old="is_after = decoded.batch_index[rows] > position.batch_index",
        new="is_after = decoded.batch_index[rows] >= position.batch_index",
        test="tests/client/reading/test_decode.py::test_positions_with_a_batch_index_cut_their_entry_only",
    ),
    Fault(
        name="compacted-topic-taken-for-empty-by-a-task",
        file="pulsar_spark/client/reading/entry_range.py",
        old="gap is Gap.EMPTY or (gap is Gap.UNKNOWN and opening.passed)",
        new="gap in (Gap.EMPTY, Gap.UNKNOWN)",
        test="tests/client/reading/test_entry_range.py::"
        "test_a_second_reader_waits_until_the_broker_has_opened_what_compaction_left",
    ),
    Fault(
        name="loss-at-the-begin-of-a-range-not-reported",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="is_after_end = self._visible and begins >= self.end.whole_entry",
        new="is_after_end = not self._visible and begins >= self.end.whole_entry",
        test="tests/protocol/reading/test_range_progress.py::test_where_the_reader_begins",
    ),
    Fault(
        name="first-messages-of-a-range-not-missed",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="return is_after_end or begins > max(self.position, self._begins)",
        new="return is_after_end",
        test="tests/protocol/reading/test_range_progress.py::test_where_the_reader_begins",
    ),
    Fault(
        name="part-of-a-range-that-a-broker-does-not-know-taken-for-empty",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="return Gap.UNKNOWN if self._followed else Gap.EMPTY",
        new="return Gap.EMPTY",
        test="tests/client/reading/test_entry_range.py::test_a_part_that_a_broker_knows_nothing_of_is_lost",
    ),
    Fault(
        name="ledger-that-a-reader-was-moved-out-of-taken-for-deleted",
        file="pulsar_spark/client/reading/entry_range.py",
        old="            if begins.ledger > progress.position.ledger and not begins.is_message:\n",
        new="            if False:\n",
        test="tests/client/reading/test_entry_range.py::"
        "test_a_reader_that_subscribes_again_at_the_end_of_a_ledger_has_lost_nothing",
    ),
    Fault(
        name="missing-end-of-a-range-not-reported",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="if is_left and (found is None or found.ledger != self.end.ledger):",
        new="if self._visible and found is None:",
        test="tests/protocol/reading/test_range_progress.py::test_the_end_does_not_come",
    ),
    Fault(
        name="ledger-removed-under-a-reader-not-noticed",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="        if not self._read_compacted and begins.ledger > position.ledger:\n",
        new="        if not self._read_compacted and begins.ledger > self.end.ledger:\n",
        test="tests/protocol/reading/test_range_progress.py::"
        "test_a_gap_is_judged_by_what_a_second_reader_finds",
    ),
    Fault(
        name="reader-that-was-moved-over-a-gap-not-noticed",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="        if mark_delete <= self.position:\n",
        new="        if mark_delete < found:\n",
        test="tests/protocol/reading/test_range_progress.py::test_a_gap_is_judged_by_where_the_reader_stands",
    ),
    Fault(
        name="gap-between-two-ledgers-not-noticed",
        file="pulsar_spark/protocol/reading/range_progress.py",
        old="follows = (ledger[1:] == ledger[0]) & (np.diff(entry) == 1)",
        new="follows = (ledger[1:] != ledger[0]) | (np.diff(entry) == 1)",
        test="tests/protocol/reading/test_range_progress.py::test_the_first_gap_among_what_came",
    ),
    Fault(
        name="chunk-out-of-order-accepted",
        file="pulsar_spark/protocol/reading/chunk_assembler.py",
        old="        if number > len(message.pieces):\n",
        new="        if number < len(message.pieces):\n",
        test="tests/protocol/reading/test_chunk_assembler.py::test_a_chunk_out_of_order_is_ignored",
    ),
    Fault(
        name="tail-goes-on-after-what-it-could-not-decode",
        file="pulsar_spark/client/reading/tail.py",
        old=(
            "                self._bytes += int(entries.sizes.sum())\n"
            "        except PulsarError as error:\n            self._is_lost = True\n"
        ),
        new="                self._bytes += int(entries.sizes.sum())\n        except PulsarError as error:\n",
        test="tests/client/reading/test_tail.py::test_what_cannot_be_taken_apart_loses_it",
    ),
)
