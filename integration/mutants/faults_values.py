"""Faults of what lies under all layers: ids and errors."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="whole-entry-sorts-before-its-messages",
        file="pulsar_spark/ids.py",
        old="_NO_BATCH = 1 << 31",
        new="_NO_BATCH = -1",
        test="tests/test_ids.py::test_message_ids_in_order",
    ),
    Fault(
        name="part-of-an-entry-acknowledged-as-a-whole",
        file="pulsar_spark/ids.py",
        old="return self if self.batch_index < 0 else self.whole_entry.back(1)",
        new="return self.whole_entry",
        test="tests/test_ids.py::test_the_places_around_a_message",
    ),
    Fault(
        name="previous-message-skips-one-of-the-batch",
        file="pulsar_spark/ids.py",
        old="return MessageId(self.ledger, self.entry, self.batch_index - 1)",
        new="return MessageId(self.ledger, self.entry, self.batch_index)",
        test="tests/test_ids.py::test_the_places_around_a_message",
    ),
    Fault(
        name="next-entry-is-the-same-entry",
        file="pulsar_spark/ids.py",
        old="return self if self.ledger < 0 else MessageId(self.ledger, self.entry + 1)",
        new="return self",
        test="tests/test_ids.py::test_the_places_around_a_message",
    ),
    Fault(
        name="partition-number-with-leading-zeros-accepted",
        file="pulsar_spark/ids.py",
        old='_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")',
        new='_PARTITION = re.compile(r"(.+)-partition-([0-9]{1,9})")',
        test="tests/test_ids.py::test_a_number_that_the_broker_would_not_write_names_no_partition",
    ),
    Fault(
        name="refused-login-tried-again",
        file="pulsar_spark/errors.py",
        old='    code = "PULSAR_AUTH"\n',
        new='    code = "PULSAR_AUTH"\n    retriable = True\n',
        test="tests/test_errors.py::test_flags",
    ),
    Fault(
        name="busy-producer-taken-for-final",
        file="pulsar_spark/errors.py",
        old='16: _ServerError("ProducerBusy", BusyError)',
        new='16: _ServerError("ProducerBusy", SendError)',
        test="tests/test_errors.py::test_the_broker_s_codes",
    ),
    Fault(
        name="topic-lost-when-an-error-is-pickled",
        file="pulsar_spark/errors.py",
        old="return _restore, (type(self), self.what, self.topic, self.message_id, self.advice)",
        new="return _restore, (type(self), self.what, None, self.message_id, self.advice)",
        test="tests/test_errors.py::test_pickled_and_copied",
    ),
)
