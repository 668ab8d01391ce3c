"""The first entry from a time on, in topics that exist only as lists of entries."""

import bisect
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
    assert first_at(topic.probe, time_ms, begin, end) == expected


@for_each("first_ledger", [3, 4, 5])
def test_it_is_found_among_entries_without_gaps(first_ledger):
    """In the last ledger, whose end is known, and in those before it, where the steps grow."""
    places = [(ledger, entry) for ledger in range(first_ledger, 6) for entry in range(10)]
    topic = Topic([Entry(MessageId(*place), time) for time, place in enumerate(places)])
    for entry in topic.entries:
        found = first_at(topic.probe, entry.publish_time, MessageId(-1, -1), topic.entries[-1].id)
        assert found == entry.id


@given(topics(ordered=False), st.integers(-1, 51))
def test_times_that_go_back(topic, time_ms):
    """It ends, at an entry that is late enough, after one that is not."""
    entries = topic.entries
    found = first_at(topic.probe, time_ms, MessageId(-1, -1), entries[-1].id)
    if found is None:
        assert entries[-1].publish_time < time_ms
        return
    number = [entry.id for entry in entries].index(found)
    assert entries[number].publish_time >= time_ms
    assert number == 0 or entries[number - 1].publish_time < time_ms


@given(st.integers(0, 200_000))
def test_it_looks_at_few(time_ms):
    """20 ledgers of 10,000 entries; gallop and bisection within one, bisection over ids 7 apart."""
    topic = Sparse()
    found = first_at(topic.probe, time_ms, MessageId(-1, -1), topic.at(199_999).id)
    assert found == (topic.at(time_ms).id if time_ms < 200_000 else None)
    assert topic.probes < 45


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
