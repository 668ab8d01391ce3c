"""The first entry from a time on, in topics that exist only as lists of entries."""

import bisect
import itertools
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.time_search import first_at
from tests.loops import for_each


class Entry(NamedTuple):
    id: MessageId
    publish_time: int


class Topic:
    """What a broker answers to a probe; there is no entry after the last one."""

    def __init__(self, entries):
        self.entries = entries
        self.probes = 0

    def probe(self, position):
        self.probes += 1
        number = bisect.bisect_left([entry.id for entry in self.entries], position)
        assert number < len(self.entries), "a real probe would wait for ever"
        return self.entries[number]

    def first_at(self, time_ms, first=MessageId.EARLIEST, last=None, *, margin=0):
        """What is found; ``read`` keeps how many entries are read for that."""
        last = last or self.entries[-1].id
        self.read = 0

        def read(after):
            for entry in self.entries:
                if after < entry.id <= last:
                    self.read += 1
                    yield entry

        return first_at(self.probe, read, time_ms, margin, first, last)


@st.composite
def topics(draw, ordered=True):
    """Ledgers with gaps between them and, of what is not visible, within them."""
    places = draw(
        st.lists(
            st.tuples(st.integers(0, 40) | st.integers(0, 10**6), st.integers(0, 30)),
            min_size=1,
            max_size=60,
            unique=True,
        )
    )
    times = draw(st.lists(st.integers(0, 50), min_size=len(places), max_size=len(places)))
    pairs = zip(sorted(places), sorted(times) if ordered else times, strict=True)
    return Topic([Entry(MessageId(*place), time) for place, time in pairs])


@given(topics(), st.integers(-1, 51), st.data())
def test_it_is_what_reading_everything_finds(topic, time_ms, data):
    first = data.draw(st.integers(0, len(topic.entries) - 1))
    last = data.draw(st.integers(first, len(topic.entries) - 1))
    inside = topic.entries[first : last + 1]
    begin = topic.entries[first].id if first else MessageId(-1, -1)
    expected = next((entry.id for entry in inside if entry.publish_time >= time_ms), None)
    end = MessageId(inside[-1].id.ledger, inside[-1].id.entry, data.draw(st.integers(-1, 3)))
    assert topic.first_at(time_ms, begin, end) == expected
    assert topic.read == 0


@for_each("first_ledger", [3, 4, 5])
def test_it_is_found_among_entries_without_gaps(first_ledger):
    """In the last ledger, whose end is known, and in those before it, where the steps grow."""
    places = [(ledger, entry) for ledger in range(first_ledger, 6) for entry in range(10)]
    topic = Topic([Entry(MessageId(*place), time) for time, place in enumerate(places)])
    for entry in topic.entries:
        found = topic.first_at(entry.publish_time)
        assert found == entry.id


def goes_back(entries):
    """By how much publish times go back at most."""
    latest = itertools.accumulate((entry.publish_time for entry in entries), max)
    return max(high - entry.publish_time for high, entry in zip(latest, entries, strict=True))


@given(topics(ordered=False), st.integers(-1, 51), st.integers(0, 2))
def test_times_that_go_back_within_the_margin(topic, time_ms, more):
    expected = next((entry.id for entry in topic.entries if entry.publish_time >= time_ms), None)
    assert topic.first_at(time_ms, margin=goes_back(topic.entries) + more) == expected


@given(topics(ordered=False), st.integers(-1, 51), st.integers(0, 20))
def test_times_that_go_back_further(topic, time_ms, margin):
    """It ends, at an entry that is late enough, after one that is not."""
    found = topic.first_at(time_ms, margin=margin)
    if found is None:
        assert topic.entries[-1].publish_time < time_ms
        return
    number = [entry.id for entry in topic.entries].index(found)
    assert topic.entries[number].publish_time >= time_ms
    assert number == 0 or topic.entries[number - 1].publish_time < time_ms


@for_each(
    ("times", "first"),
    [
        ([-2, 1, -1], 1),  # two clocks
        ([-60_001, *range(1000), -1], 1),  # the topic ends 1 ms too early
        ([-60_001, -60_000, -1, -1, 0], 4),
        ([-1, -1, -1], None),
        ([-60_002, -60_001], None),
        ([0, -60_000], 0),
    ],
)
def test_topics_at_the_margin(times, first):
    topic = Topic([Entry(MessageId(7, number), 100_000 + time) for number, time in enumerate(times)])
    found = topic.first_at(100_000, margin=60_000)
    assert found == (None if first is None else MessageId(7, first))


def test_entries_are_read_within_the_margin():
    """Between the entries that are probed; nothing that is older, and nothing after what is found."""
    topic = Topic([Entry(MessageId(7, number), number) for number in range(10_000)])
    assert topic.first_at(5000, margin=100) == MessageId(7, 5000)
    assert topic.read == 100


@given(st.integers(0, 200_000))
def test_it_looks_at_few(time_ms):
    """20 ledgers of 10,000 entries; gallop and bisection within one, bisection over ids 7 apart."""
    topic = Sparse()
    found = first_at(topic.probe, nothing, time_ms, 0, MessageId(-1, -1), topic.at(199_999).id)
    assert found == (topic.at(time_ms).id if time_ms < 200_000 else None)
    assert topic.probes < 45


def nothing(after):
    yield from ()


class Sparse:
    """Entry n is published at n ms."""

    def __init__(self):
        self.probes = 0

    def at(self, number):
        return Entry(MessageId(100 + 7 * (number // 10_000), number % 10_000), number)

    def probe(self, position):
        self.probes += 1
        ledger, rest = divmod(max(0, position.ledger - 100), 7)
        if rest:
            return self.at((ledger + 1) * 10_000)
        return self.at(ledger * 10_000 + min(max(0, position.entry), 10_000))
