import pytest

from pulsar_spark.spark.options.source import Limits


@pytest.mark.parametrize(
    ("limits", "capped"),
    [
        (Limits(), False),
        (Limits(min_messages=5, max_delay=1.0), False),
        (Limits(max_messages=5), True),
        (Limits(max_bytes=5), True),
    ],
)
def test_only_maximums_cap_a_batch(limits, capped):
    assert limits.is_capped is capped
