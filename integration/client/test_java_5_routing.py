"""Where rows go in a scalable topic: to the segment and entry bucket that Pulsar 5's Java client chooses."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from integration.helpers.java_segments import places_in_java_5
from pulsar_spark.client import Segment
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.routing import (
    HashingScheme,
    RoutingMode,
    SegmentRouter,
    bucket_hashes,
    raw_hashes,
)

TOPIC = TopicName("topic", "public", "default", "t")
HASHES = 1 << 16
KEYS = 100_000


def layout_of(bounds, rng, *, has_buckets):
    """Segments that begin at these hashes, numbered in any order."""
    numbers = rng.sample(range(1000), len(bounds))
    return [
        Segment(
            TOPIC.segment(first, end - 1, number),
            is_sealed=False,
            first_hash=first,
            last_hash=end - 1,
            bucket_splits=tuple(sorted(rng.sample(range(1, HASHES), rng.randrange(8) * has_buckets))),
        )
        for number, (first, end) in zip(numbers, pairwise([*bounds, HASHES]), strict=True)
    ]


def some_keys(rng):
    """Text of all kinds: numbers, UUIDs, other alphabets, and any code points, of 0 to 200 characters."""
    alphabets = (
        "0123456789",
        "abcdefghijklmnopqrstuvwxyz-_.",
        "\u00e4\u00f6\u00fc\u4e2d\u6587\U0001f600\x00 \n",
    )
    keys = {"", *(f"key-{number}" for number in range(KEYS // 4)), *map(str, range(KEYS // 4))}
    while len(keys) < KEYS:
        keys.add("".join(rng.choices(rng.choice(alphabets), k=rng.choice([1, 3, 4, 5, 8, 17, 36, 200]))))
    return sorted(keys)


@pytest.mark.parametrize("has_buckets", [False, True])
def test_each_key_has_the_segment_and_the_bucket_that_java_chooses(has_buckets):
    rng = random.Random(7)
    keys = some_keys(rng)
    bounds = [[number * (HASHES // count) for number in range(count)] for count in (1, 2, 3, 5, 17, 64)]
    bounds += [sorted({0, *rng.sample(range(HASHES), rng.randrange(64))}) for _ in range(6)]
    layouts = [layout_of(each, rng, has_buckets=has_buckets) for each in bounds]
    given = [
        [(each.topic.partition, each.first_hash, each.last_hash, each.bucket_splits) for each in layout]
        for layout in layouts
    ]
    expected = places_in_java_5(keys, given)
    column = pa.array(keys, pa.string()).cast(pa.binary())
    raw = raw_hashes(column)
    hashes = bucket_hashes(raw, None)
    for number, layout in enumerate(layouts):
        router = SegmentRouter(
            RoutingMode.ROUND_ROBIN, HashingScheme.MURMUR3_32, None, start=0, block=1, switch_after=None
        )
        router.follow({each.topic.partition: each for each in layout})
        segments = router.route_hashes(raw, column, 0.0)
        assert np.array_equal(segments, expected[:, number, 0])
        splits = {each.topic.partition: each.bucket_splits for each in layout}
        for segment in np.unique(segments).tolist():
            rows = segments == segment
            buckets = np.searchsorted(splits[segment], hashes[rows], "right")
            assert np.array_equal(buckets, expected[rows, number, 1])
