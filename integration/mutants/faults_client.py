"""Faults of the client: waiting, retrying, logging in, reading and writing."""

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
)
