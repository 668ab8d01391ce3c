"""Which sealed segments may have rows of a micro-batch."""

import pytest

from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.sealed_segments import SeenEpochs, has_gap, lacks_partitions, to_search
from pulsar_spark.protocol.segments import Segment

TOPIC = TopicName.parse("topic://public/default/st", scalable=True)
ALL, LEFT, RIGHT = (0, 0xFFFF), (0, 0x7FFF), (0x8000, 0xFFFF)


def segment(number, hashes, created, sealed=None):
    first, last = hashes
    name = TOPIC.segment(first, last, number)
    return Segment(name, sealed is not None, first, last, created_at=created, sealed_at=sealed)


# One segment is split at epoch 2, and merged at epoch 5; then its left half is split off again at epoch 7.
HISTORY = [
    segment(0, ALL, 0, 2),
    segment(1, LEFT, 2, 5),
    segment(2, RIGHT, 2, 5),
    segment(3, ALL, 5, 7),
    segment(4, LEFT, 7),
    segment(5, RIGHT, 7),
]


@pytest.mark.parametrize(
    ("since", "numbers"),
    [(-1, [3, 1, 2, 0]), (0, [3, 1, 2, 0]), (1, [3, 1, 2, 0]), (2, [3, 1, 2]), (5, [3]), (6, [3]), (7, [])],
)
def test_what_was_sealed_before_an_earlier_micro_batch_was_written_is_left_out(since, numbers):
    assert [each.topic.partition for each in to_search(HISTORY, since)] == numbers


@pytest.mark.parametrize("since", [-1, 0, 3, 7, 9])
def test_all_segments_have_no_gap(since):
    assert not has_gap(HISTORY, since)
    assert not has_gap(HISTORY[::-1], since)


@pytest.mark.parametrize(
    ("deleted", "newest"), [([0], 1), ([1], 4), ([2], 4), ([0, 1, 2], 4), ([3], 6), ([0, 1, 2, 3], 6)]
)
def test_a_deleted_segment_is_a_gap_as_long_as_it_got_messages(deleted, newest):
    left = [each for each in HISTORY if each.topic.partition not in deleted]
    assert [has_gap(left, since) for since in range(-1, 9)] == [since <= newest for since in range(-1, 9)]


def test_a_segment_that_was_split_at_once_may_be_deleted():
    assert has_gap([segment(1, LEFT, 1), segment(2, RIGHT, 1)], 0)
    assert not has_gap([segment(0, ALL, 0, 1), segment(1, LEFT, 1), segment(2, RIGHT, 1)], 0)


def test_a_segment_that_began_after_the_epoch_may_be_deleted():
    assert has_gap([HISTORY[0], HISTORY[2], *HISTORY[3:]], 0)


MIGRATED = [segment(2, LEFT, 0), segment(3, RIGHT, 0, 4), segment(4, RIGHT, 4)]
PARTITIONS = [
    Segment(TOPIC._replace(domain="persistent").of_partition(number), True, *ALL, True, (), -1, 0)
    for number in range(2)
]


def test_partitions_of_a_migrated_topic_leave_no_gap():
    assert not has_gap([*PARTITIONS, *MIGRATED], -1)
    assert to_search([*PARTITIONS, *MIGRATED], -1) == [MIGRATED[1], *PARTITIONS]
    assert to_search([*PARTITIONS, *MIGRATED], 0) == [MIGRATED[1]]


def test_partitions_of_a_migrated_topic_may_be_deleted():
    assert has_gap(MIGRATED, -1)
    assert has_gap([PARTITIONS[0], *MIGRATED], -1)
    assert not has_gap(MIGRATED, 0)  # an earlier micro-batch was written after the migration


def test_earlier_micro_batches_have_seen_epochs():
    """The second write of a micro-batch does not: an earlier run may have stored it already."""
    seen = SeenEpochs()
    history = [(3, 4), (3, 5), (4, 7), (4, 9), (9, 9)]
    assert [seen.see(batch, epoch) for batch, epoch in history] == [-1, -1, 4, 4, 7]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_micro_batch_of_a_process_counts_for_the_next_one(first):
    seen = SeenEpochs()
    assert [seen.see(first, 7), seen.see(first + 1, 7), seen.see(first + 2, 9)] == [-1, 7, 7]


@pytest.mark.parametrize(("batch", "epoch"), [(3, 9), (6, 1)])
def test_a_checkpoint_that_was_set_back_and_a_new_topic_have_seen_nothing(batch, epoch):
    seen = SeenEpochs()
    assert [seen.see(4, 7), seen.see(5, 8), seen.see(batch, epoch)] == [-1, 7, -1]
    assert seen.see(batch + 1, 20) == epoch


@pytest.mark.parametrize(
    ("partitions", "first", "is_lacking"),
    [
        (0, None, False),
        (2, None, False),
        (0, 0, False),
        (2, 2, False),
        (1, 2, True),
        (0, 2, True),
        (0, 1, True),
    ],
)
def test_partitions_that_are_missing_in_a_layout(partitions, first, is_lacking):
    """``first``: number of the first segment that is no partition."""
    names = [
        TopicName.parse(f"persistent://public/default/st-partition-{number}") for number in range(partitions)
    ]
    layout = [Segment(name, True, *ALL, is_legacy=True, created_at=-1, sealed_at=0) for name in names]
    layout += [] if first is None else [segment(first, LEFT, 0), segment(first + 1, RIGHT, 0)]
    assert lacks_partitions(layout) == is_lacking
