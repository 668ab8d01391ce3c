"""Faults of the client: waiting, retrying, logging in, reading."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="final-error-tried-again",
        file="pulsar_spark/client/net/retry.py",
        old="if not error.retriable or deadline.left <= wait:",
        new="if deadline.left <= wait:",
        test="tests/client/net/test_retry.py::test_a_final_error_is_raised_at_once",
    ),
    Fault(
        name="pause-longer-than-the-deadline",
        file="pulsar_spark/client/net/retry.py",
        old="if not error.retriable or deadline.left <= wait:",
        new="if not error.retriable or deadline.passed:",
        test="tests/client/net/test_retry.py::"
        "test_it_never_sleeps_past_its_deadline_and_raises_the_last_error",
    ),
    Fault(
        name="later-of-two-deadlines-taken",
        file="pulsar_spark/client/net/deadline.py",
        old="return Deadline(min(seconds, self.left))",
        new="return Deadline(max(seconds, self.left))",
        test="tests/client/net/test_deadline.py::test_the_earlier_of_two",
    ),
    Fault(
        name="handshake-without-a-deadline",
        file="pulsar_spark/client/net/transport.py",
        old="if not selector.select(deadline.left) and deadline.passed:",
        new="if not selector.select(50 * deadline.seconds) and deadline.passed:",
        test="tests/client/net/test_transport.py::test_a_peer_that_says_nothing_is_given_up_in_time",
    ),
    Fault(
        name="secret-in-the-repr-of-credentials",
        file="pulsar_spark/client/net/auth.py",
        old='params: str = field(default="", repr=False)',
        new='params: str = field(default="")',
        test="tests/client/net/test_auth.py::test_nothing_shows_what_is_secret",
    ),
    Fault(
        name="token-file-read-when-the-login-is-made",
        file="pulsar_spark/client/net/auth.py",
        old="            self._read: Callable[[], str] = lambda: _text_of(path)\n",
        new="            kept = _text_of(path)\n            self._read: Callable[[], str] = lambda: kept\n",
        test="tests/client/net/test_auth.py::test_a_token_file_is_read_at_each_use",
    ),
    Fault(
        name="open-ledger-counted-as-empty",
        file="pulsar_spark/client/net/admin.py",
        old="if ledgers and ledgers[-1].entries == 0:",
        new="if ledgers and ledgers[-1].entries < 0:",
        test="tests/client/net/test_admin.py::test_the_open_ledger_is_counted_elsewhere",
    ),
    Fault(
        name="entry-read-twice-after-a-reconnect",
        file="pulsar_spark/client/reading/consumer.py",
        old="        entries = _new_after(entries, last)\n",
        new="",
        test="tests/client/reading/test_consumer.py::test_what_is_delivered_twice_is_given_out_once",
    ),
    Fault(
        name="entry-skipped-after-a-reconnect",
        file="pulsar_spark/client/reading/consumer.py",
        old="start = MessageId(self._last.ledger, self._last.entry + 1)",
        new="start = MessageId(self._last.ledger, self._last.entry + 2)",
        test="tests/client/reading/test_consumer.py::test_after_a_loss_it_goes_on_after_the_last_entry[5-cut]",
    ),
    Fault(
        name="refused-acks-forgotten",
        file="pulsar_spark/client/reading/consumer.py",
        old="            self._acks.put_back(group, time.monotonic())\n",
        new="",
        test="tests/client/reading/test_consumer.py::test_an_ack_that_is_refused_waits_for_the_next",
    ),
    Fault(
        name="seek-one-entry-too-far",
        file="pulsar_spark/client/reading/consumer.py",
        old="self._options = replace(self._options, start=target)",
        new="self._options = replace(self._options, start=target.next_entry)",
        test="tests/client/reading/test_consumer.py::test_a_seek_goes_on_from_its_target[2-options0]",
    ),
    Fault(
        name="permits-not-used-up-by-what-comes",
        file="pulsar_spark/client/reading/consumer.py",
        old="            self._permits.used(held, int(entries.sizes.sum()), count)\n",
        new="            pass\n",
        test="tests/client/reading/test_consumer.py::test_permits_are_refilled_by_the_messages_of_batches",
    ),
    Fault(
        name="entries-after-the-end-of-a-range-given",
        file="pulsar_spark/client/reading/entry_range.py",
        old="yield entries[:count]",
        new="yield entries",
        test="tests/client/reading/test_entry_range.py::test_all_after_the_start_up_to_and_with_the_end",
    ),
    Fault(
        name="messages-before-the-loss-dropped",
        file="pulsar_spark/client/reading/inbox.py",
        old="if not messages and self._error is not None:",
        new="if self._error is not None:",
        test="tests/client/reading/test_inbox.py::"
        "test_what_came_before_the_end_is_taken_before_the_error_is_raised",
    ),
    Fault(
        name="ended-session-used-again",
        file="pulsar_spark/client/net/pool.py",
        old="if slot.session is None or slot.session.error is not None:",
        new="if slot.session is None:",
        test="tests/client/net/test_pool.py::test_a_session_that_has_ended_is_opened_again",
    ),
    Fault(
        name="bytes-sent-twice-where-a-socket-takes-a-part",
        file="pulsar_spark/client/net/session.py",
        old="self._out[0] = memoryview(buffer)[sent:]",
        new="self._out[0] = memoryview(buffer)",
        test="tests/client/net/test_session.py::test_more_than_a_socket_takes_at_once_arrives_whole",
    ),
    Fault(
        name="pending-requests-left-without-an-answer",
        file="pulsar_spark/client/net/session.py",
        old="            answer.set_exception(copy(error))\n",
        new="            pass\n",
        test="tests/client/net/test_session.py::test_the_end_is_told_to_all_who_wait[cut]",
    ),
)
