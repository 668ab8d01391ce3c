from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.ranges import Range, split

TOPICS = [TopicName.parse("t").of_partition(number) for number in range(4)]


@st.composite
def topics_with_ranges(draw):
    """Ranges, and by topic the lengths of its ledgers (ids 10, 20, ...) and what is known of their ends."""
    ranges, ledgers, ends = [], {}, {}
    for topic in draw(st.lists(st.sampled_from(TOPICS), unique=True)):
        lengths = ledgers[topic] = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
        entries = [MessageId(10 * n + 10, e) for n, length in enumerate(lengths) for e in range(length)]
        positions = [MessageId(10, -1), *entries]
        positions += [MessageId(each.ledger, each.entry, 1) for each in entries]
        start, end = sorted(draw(st.lists(st.sampled_from(positions), min_size=2, max_size=2, unique=True)))
        visible, begins = draw(st.booleans()), draw(st.sampled_from([None, MessageId(1, -1)]))
        ranges.append(Range(topic, start, end, visible, begins))
        known = [MessageId(10 * n + 10, length - 1) for n, length in enumerate(lengths)]
        ends[topic] = [each for each in known if draw(st.booleans())]
    return ranges, ledgers, ends


def entries(each: Range, lengths: list[int]) -> list[MessageId]:
    """The entries of which a range holds something."""
    every = [MessageId(10 * n + 10, e) for n, length in enumerate(lengths) for e in range(length)]
    first = MessageId(each.start.ledger, each.start.entry - (each.start.batch_index >= 0))
    return [entry for entry in every if first < entry <= each.end.whole_entry]


@given(topics_with_ranges(), st.none() | st.integers(1, 50), st.none() | st.integers(1, 50), st.floats(1, 10))
def test_the_pieces_are_the_ranges(drawn, least, most, mean):
    ranges, ledgers, ends = drawn
    means = {each.topic: mean for each in ranges}

    def again():
        return split(
            ranges, min_partitions=least, max_messages=most, ledger_ends=ends, messages_per_entry=means
        )

    pieces = again()
    assert pieces == again()
    assert list(dict.fromkeys(each.topic for each in pieces)) == [each.topic for each in ranges]
    for whole in ranges:
        own = [each for each in pieces if each.topic == whole.topic]
        assert (own[0].start, own[-1].end, own[-1].visible) == (whole.start, whole.end, whole.visible)
        assert all(before.end == after.start and not before.visible for before, after in pairwise(own))
        assert all(each.start < each.end and each.begins == whole.begins for each in own)
        lengths = ledgers[whole.topic]
        assert [entry for each in own for entry in entries(each, lengths)] == entries(whole, lengths)


@given(topics_with_ranges(), st.integers(1, 200), st.integers(1, 50), st.integers(1, 10))
def test_as_many_pieces_as_asked_for_where_ledgers_are_known(drawn, least, most, mean):
    ranges, ledgers, _ = drawn
    ends = {
        topic: [MessageId(10 * n + 10, length - 1) for n, length in enumerate(lengths)]
        for topic, lengths in ledgers.items()
    }
    counts = [len(entries(each, ledgers[each.topic])) for each in ranges]
    pieces = split(ranges, min_partitions=least, max_messages=None, ledger_ends=ends)
    assert len(pieces) == max(len(ranges), min(least, sum(counts)))
    means = {each.topic: float(mean) for each in ranges}
    pieces = split(ranges, min_partitions=None, max_messages=most, ledger_ends=ends, messages_per_entry=means)
    in_one = max(1, most // mean)
    assert len(pieces) == sum(-(-count // in_one) for count in counts)
    assert all(len(entries(piece, ledgers[piece.topic])) <= in_one for piece in pieces)
    for whole in ranges:
        sizes = [len(entries(each, ledgers[each.topic])) for each in pieces if each.topic == whole.topic]
        assert max(sizes) - min(sizes) <= 1


def test_the_longest_are_cut_first():
    long, short = (
        Range(topic, MessageId(1, -1), MessageId(1, last))
        for topic, last in zip(TOPICS, (899, 99), strict=False)
    )
    pieces = split([long, short], min_partitions=5, max_messages=None)
    assert [each.topic for each in pieces] == [TOPICS[0]] * 4 + [TOPICS[1]]
    assert [each.end.entry for each in pieces] == [224, 449, 674, 899, 99]


def test_ledgers_that_are_not_known_stay_whole():
    whole = Range(TOPICS[0], MessageId(3, 50), MessageId(9, 9))
    pieces = split([whole], min_partitions=5, max_messages=None)
    assert [each.end for each in pieces] == [MessageId(9, entry) for entry in (1, 3, 5, 7, 9)]


def test_nothing_is_cut_unless_asked():
    ranges = [Range(TOPICS[0], MessageId(1, -1), MessageId(1, 10**9), visible=False)]
    assert split(ranges, min_partitions=None, max_messages=None) == ranges
    assert split([], min_partitions=10, max_messages=10) == []
