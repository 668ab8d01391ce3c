"""Whether a cluster is another one, and where a query continues there, in logs that are lists of entries."""

import random
from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

import pytest

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import (
    CopiedPartition,
    CopyRange,
    Source,
    Witness,
    source_of,
)
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import a_few_of

MARGIN = 10


class Entry(NamedTuple):
    id: MessageId
    publish_time: int
    source: Source | None = None


def at(text):
    return MessageId.parse(text)


def copy(id_, source, time=0, cluster="a"):
    return Entry(at(id_), time, Source(cluster, None if source is None else at(source)))


def own(id_, time=0):
    return Entry(at(id_), time)


class Log:
    """A partition; `read` counts the entries that were read, and `reads` how often reading began."""

    def __init__(self, entries, cluster="a"):
        self.entries = entries
        self.read = self.reads = 0
        begin = entries[0].id.previous if entries else MessageId(9, -1)
        self.partition = CopiedPartition(self._read, cluster, begin, entries[-1].id if entries else begin)

    def _read(self, after):
        self.reads += 1
        ids = [each.id for each in self.entries]
        for each in self.entries[bisect_right(ids, after) :]:
            self.read += 1
            yield each

    def start(self, position, margin=MARGIN):
        return self.partition.start_after(self.partition.around(at(position)), margin)


@pytest.mark.parametrize(
    ("position", "last_read", "following"),
    [
        ("3:0", "7:0", "7:2"),
        ("3:1", "7:2", "9:0"),
        ("3:1:4", "7:2", "9:0"),
        ("3:2", "9:0", None),
        ("4:7", "9:0", None),
        ("2:9", None, "7:0"),
    ],
)
def test_copies_around_a_position(position, last_read, following):
    log = Log(
        [
            copy("7:0", "3:0"),
            own("7:1"),
            copy("7:2", "3:1"),
            copy("9:0", "3:2"),
            copy("9:1", "3:9", cluster="c"),
        ]
    )
    found = log.partition.around(at(position))
    assert [None if each is None else str(each.id) for each in found] == [last_read, following]
    assert log.partition.around(MessageId.LATEST).last_read.id == at("9:0")


def test_no_entry_is_read_twice():
    log = Log([copy("7:0", "3:0"), own("7:1"), copy("7:2", "3:1")])
    assert log.partition.around(at("3:0"))[0].id == at("7:0")
    reads = log.reads
    assert log.partition.around(at("3:1")).last_read.id == at("7:2")
    assert log.partition.around(at("2:0")).next.id == at("7:0")
    assert log.reads == reads  # both were found by a probe at their own ids, or before


def test_a_partition_without_entries():
    log = Log([])
    assert log.partition.around(at("3:0")) == (None, None)
    assert log.partition.around(MessageId.LATEST).last_read is None
    assert log.partition.start_after(log.partition.around(at("3:0")), 0) == MessageId(9, -1)
    assert log.reads == 0  # the broker would send nothing


@pytest.mark.parametrize(
    ("position", "entries", "is_complete", "has_arrived"),
    [
        ("3:1", [copy("7:0", "3:1")], True, True),
        ("3:1", [copy("7:0", "3:0")], True, False),  # the rest is not copied yet
        ("3:1", [copy("7:0", "3:0"), copy("7:1", "3:2")], True, True),  # 3:1 is no entry of that cluster
        ("3:1", [copy("7:0", "3:2")], True, True),  # what is next is here
        ("3:1", [copy("7:0", "3:3")], False, True),  # 3:2 may have been deleted
        ("3:1", [own("7:0")], False, False),
        ("3:1", [copy("7:0", None)], False, False),
        ("3:-1", [own("7:0")], True, False),  # nothing was read there, and nothing has come
        ("3:-1", [copy("7:0", "3:0")], True, True),
        ("3:-1", [copy("7:0", "3:1")], False, True),
        ("-1:-1", [copy("7:0", "3:0")], True, True),  # the partition is new to the query
        ("-1:-1", [copy("7:0", "3:1")], False, True),
        ("0:-1", [copy("7:0", "3:0")], False, True),
    ],
)
def test_what_is_known_to_be_here(position, entries, is_complete, has_arrived):
    copied = Log(entries).partition.around(at(position))
    assert copied.is_complete(at(position)) is is_complete
    assert copied.has_arrived(at(position)) is has_arrived


@pytest.mark.parametrize(
    ("others", "start"),
    [
        ([], "7:2"),  # the copy of the position is read, of which rows may be left
        ([own("7:0", 89)], "7:2"),
        ([own("7:0", 90)], "7:-1"),
        ([own("7:0", 85), own("7:1", 90)], "7:0"),
        ([own("7:0", 95), own("7:1", 85)], "7:-1"),  # times go back
        ([copy("7:1", "5:5", 95, "c")], "7:0"),
        ([copy("7:1", "5:5", 85, "c")], "7:2"),
    ],
)
def test_entries_of_others_are_read_again_from_the_margin_on(others, start):
    log = Log([*others, copy("7:3", "3:1", 100), own("7:4", 50), copy("8:0", "3:2", 101)])
    assert log.start("3:1") == at(start)
    assert log.start("3:1:7") == at(start)


def test_entries_that_were_sent_again_do_not_hide_later_ones():
    log = Log([copy(f"7:{n}", f"3:{place}", place) for n, place in enumerate([0, 1, 2, 3, 1, 2, 3, 4])])
    for number in range(5):
        start = log.start(f"3:{number}")
        following = [each.source.position.entry for each in log.entries if each.id > start]
        assert following[0] == number
        assert set(range(number, 5)) <= set(following)


def test_a_long_stretch_of_others_is_read_over_a_few_times():
    log = Log([copy("7:0", "3:0"), *(own(f"7:{n}", n) for n in range(1, 5000)), copy("7:5000", "3:1", 5000)])
    copied = log.partition.around(at("3:0"))
    assert (copied.last_read.id, copied.next.id) == (at("7:0"), at("7:5000"))
    assert log.read < 5000 + 50


@pytest.mark.parametrize(
    ("source", "time", "rows"),
    [
        (None, 0, True),
        (Source("c", at("3:1")), 0, True),
        (Source("a", None), 0, True),
        (Source("a", at("2:9")), 0, False),
        (Source("a", at("3:1")), 0, False),
        (Source("a", at("3:1")), 100, False),
        (Source("a", at("3:1")), 101, True),  # the cluster was built anew
        (Source("a", at("3:2")), 0, True),
        (Source("a", at("5:0")), 0, True),
        (Source("a", at("5:1")), 0, False),
    ],
)
def test_copies_that_count(source, time, rows):
    copies = CopyRange("a", at("3:1"), 100, at("5:0"))
    assert (copies.rows_of(source, time) is not None) is rows


def test_rows_within_a_batch():
    copies = CopyRange("a", at("3:1:4"), 100, at("5:0:2"))
    assert copies.rows_of(Source("a", at("3:0")), 0) is None
    assert copies.rows_of(Source("a", at("3:1")), 0) == (4, 2**31 - 1)
    assert copies.rows_of(Source("a", at("4:0")), 0) == (-1, 2**31 - 1)
    assert copies.rows_of(Source("a", at("5:0")), 0) == (-1, 2)
    assert copies.rows_of(Source("a", at("5:1")), 0) is None
    assert copies._replace(up_to=at("5:0:0")).rows_of(Source("a", at("5:0")), 0) == (-1, 0)
    assert CopyRange("a", at("3:1:4"), 100, at("3:1:6")).rows_of(Source("a", at("3:1")), 0) == (4, 6)


class Cluster:
    """A cluster in a history; its ledgers begin anywhere, perhaps where another cluster's do."""

    def __init__(self, rnd, name):
        self.name = name
        self.log = []
        self._rnd = rnd
        self._place = MessageId(rnd.randint(1, 4), -1)

    def append(self, time, source=None):
        if self._rnd.random() < 0.1:
            self._place = MessageId(self._place.ledger + self._rnd.randint(1, 3), -1)
        self._place = self._place.next_entry
        entry = Entry(self._place, time, source)
        self.log.append(entry)
        return entry

    def identity(self, entry):
        return (
            (self.name, entry.id) if entry.source is None else (entry.source.cluster, entry.source.position)
        )


def history(rnd):
    """Logs of a and b; c is written elsewhere. Only the copies of a to b may take longer than the margin."""
    a, b = Cluster(rnd, "a"), Cluster(rnd, "b")
    links = {"ab": [], "ba": [], "ca": [], "cb": []}
    c_place, lag = MessageId(2, -1), rnd.choice((0.9, 0.5, 0.1))
    writers = rnd.choice(("a", "ab", "abc"))
    clock = rnd.randint(0, 3)
    for time in range(rnd.randint(1, 50)):
        skew = time - rnd.randint(0, clock)
        match rnd.choice(writers):
            case "a":
                entry = a.append(skew)
                links["ab"].append((entry, Source("a", entry.id), time))
            case "b":
                entry = b.append(skew)
                links["ba"].append((entry, Source("b", entry.id), time))
            case _:
                c_place = c_place.next_entry
                entry = Entry(c_place, skew)
                for link in ("ca", "cb"):
                    links[link].append((entry, Source("c", c_place), time))
        for link, waiting in links.items():
            to, sent = (a if link[1] == "a" else b), []
            while waiting and (
                rnd.random() < lag or (link != "ab" and time - waiting[0][2] >= MARGIN - 2 - clock)
            ):
                entry, source, _ = waiting.pop(0)
                to.append(entry.publish_time, source)
                sent.append((entry, source, time))
            if sent and rnd.random() < 0.1:  # the replicator begins again, from an entry that it had sent
                waiting[:0] = sent[rnd.randrange(len(sent)) :]
    return a, b


@pytest.mark.parametrize("seed", a_few_of(20))
def test_histories_lose_nothing_and_double_nothing_but_others_within_the_margin(seed):
    rnd = random.Random(seed)
    seen = Counter()
    for _ in range(1000):
        a, b = history(rnd)
        if not a.log:
            continue
        place = rnd.randrange(len(a.log))
        position = a.log[place].id
        read_there = {a.identity(each) for each in a.log[: place + 1]}
        arrived = rnd.randint(0, len(b.log))  # what is here at the move; the rest comes later
        later, trimmed = b.log[arrived:], rnd.choice((0, 0, 0, 4))
        log = Log(b.log[trimmed:arrived])
        copied = log.partition.around(position)
        if not copied.is_complete(position):
            seen["told"] += 1
            continue
        start = log.partition.start_after(copied, MARGIN)
        copies = CopyRange("a", position, 10**6)
        here = [each for each in log.entries if each.id > start] + later
        rows = Counter(b.identity(each) for each in here if copies.rows_of(each.source, each.publish_time))
        stored = Counter(map(b.identity, log.entries + later))
        for entry, count in stored.items():
            if entry[0] == "a":
                assert rows[entry] <= count
                assert (rows[entry] > 0) is (entry[1] > position)
                seen["copy", rows[entry] > 0] += 1
            elif entry not in read_there:
                assert rows[entry] > 0
                seen["other", "new"] += 1
            elif rows[entry]:
                seen["other", "again"] += 1
        if copied.last_read is not None:
            again = [each for each in here if b.identity(each) in read_there and each.source is None]
            assert all(each.publish_time >= copied.last_read.publish_time - 2 * MARGIN for each in again)
    assert {("copy", True), ("copy", False), ("other", "new"), ("other", "again"), "told"} <= seen.keys()


T = TopicName.parse("t")


def metadata(cluster=None, *positions, other=b"other"):
    made = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=1)
    if cluster is not None:
        made.replicated_from = cluster
    made.properties.add(key=other, value=b"1:1")
    for each in positions:
        made.properties.add(key=b"__MSG_PROP_REPL_SOURCE_POSITION", value=each)
    return made


@pytest.mark.parametrize(
    ("made", "source"),
    [
        (metadata(), None),
        (metadata(None, b"3:4"), None),
        (metadata(b"a"), Source("a", None)),
        (metadata(b"a", b"3:4"), Source("a", MessageId(3, 4))),
        (metadata(b"a", b"no position"), Source("a", None)),
        (metadata(b"a", b"\xff"), Source("a", None)),
        (metadata(b"\xff", b"3:4"), Source("\ufffd", MessageId(3, 4))),
        (metadata(b"a", b"3:4", other=b"\xff"), Source("a", MessageId(3, 4))),
    ],
)
def test_the_source_of_a_copy_is_read(made, source):
    assert source_of(made) == source


@pytest.mark.parametrize("source", [None, Source("a", MessageId(1, 1))])
def test_a_witness_is_recognized_by_id_time_and_source(source):
    witness = Witness.of(T, Entry(MessageId(5, 7), 1000, source))
    assert witness.topic == T
    other = Source("a", MessageId(1, 2)) if source else Source("a", MessageId(5, 7))
    assert witness.is_at(Entry(MessageId(5, 7), 1000, source))
    assert not witness.is_at(Entry(MessageId(5, 7), 1001, source))
    assert not witness.is_at(Entry(MessageId(5, 7), 1000, other))
    assert not witness.is_at(Entry(MessageId(5, 8), 1000, source))
    assert not witness.is_at(None)


def test_a_copy_of_the_witness_has_its_id_as_source_and_its_time():
    witness = Witness(T, MessageId(5, 7), 1000)
    assert witness.is_copied_to(Entry(MessageId(1, 1), 1000, Source("a", MessageId(5, 7))))
    assert not witness.is_copied_to(Entry(MessageId(1, 1), 1001, Source("a", MessageId(5, 7))))
    assert not witness.is_copied_to(Entry(MessageId(1, 1), 1000, Source("a", MessageId(5, 8))))
    assert not witness.is_copied_to(Entry(MessageId(5, 7), 1000))


def histories(rnd):
    """The logs of a topic in the clusters a and b, whose ledgers begin anywhere, perhaps alike."""
    logs = {name: [] for name in "ab"}
    places = {name: MessageId(rnd.randint(1, 3), -1) for name in "ab"}
    waiting = {"a": [], "b": []}

    def append(name, time, source):
        place = places[name]
        if rnd.random() < 0.1:
            place = MessageId(place.ledger + rnd.randint(1, 3), -1)
        places[name] = place.next_entry
        entry = Entry(places[name], time, source)
        logs[name].append(entry)
        return entry

    for time in range(rnd.randint(1, 40)):
        writer, other = rnd.sample("ab", 2)
        if rnd.random() < 0.2:  # a third cluster, whose copies both have
            source = Source("c", MessageId(1, time))
            for name in "ab":
                append(name, time, source)
        else:
            entry = append(writer, time, None)
            waiting[writer].append((other, entry))
        for name in "ab":
            while waiting[name] and rnd.random() < 0.6:
                to, entry = waiting[name].pop(0)
                for _ in range(1 + (rnd.random() < 0.1)):  # sent again
                    append(to, entry.publish_time, Source(name, entry.id))
    for name in "ab":
        del logs[name][: rnd.choice((0, 0, 3))]
    return logs


@pytest.mark.parametrize("seed", a_few_of(20))
def test_histories_never_take_another_cluster_for_the_same(seed):
    """Except by a copy of a third cluster's entry, which is only a witness where the topic has no own one."""
    rnd = random.Random(seed)
    seen = set()
    for _ in range(1000):
        logs = histories(rnd)
        for entry in logs["a"]:
            if entry.source is not None and entry.source.cluster == "c":
                continue
            witness = Witness.of(T, entry)
            own = next(each for each in logs["a"] if each.id == entry.id)
            assert witness.is_at(own)
            found = next((each for each in logs["b"] if each.id == entry.id), None)
            assert not witness.is_at(found)
            is_copied = any(map(witness.is_copied_to, logs["b"]))
            assert is_copied <= (entry.source is None)
            seen.add((found is None, is_copied))
    assert seen == {(is_gone, is_copied) for is_gone in (True, False) for is_copied in (True, False)}
