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
)
