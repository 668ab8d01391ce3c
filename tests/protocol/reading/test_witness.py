"""The witness of a cluster: every pair of what it was and what is found; histories of two clusters."""

import random
from typing import NamedTuple

import pytest

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.witness import Source, Witness, WitnessVerdict, source_of
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import a_few_of

T = TopicName.parse("t")
SAME, OTHER, GONE = WitnessVerdict


class Entry(NamedTuple):
    id: MessageId
    publish_time: int
    source: Source | None = None


def metadata(cluster=None, *positions):
    made = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=1)
    if cluster is not None:
        made.replicated_from = cluster
    made.properties.add(key=b"other", value=b"1:1")
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
        (metadata(b"\xff", b"3:4"), Source("\ufffd", MessageId(3, 4))),
    ],
)
def test_the_source_of_a_copy_is_read(made, source):
    assert source_of(made) == source


@pytest.mark.parametrize("source", [None, Source("a", MessageId(1, 1))])
def test_an_entry_is_judged_by_id_time_and_source(source):
    witness = Witness.of(T, Entry(MessageId(5, 7), 1000, source))
    other = Source("a", MessageId(1, 2)) if source else Source("a", MessageId(5, 7))
    assert witness.judge(Entry(MessageId(5, 7), 1000, source)) is SAME
    assert witness.judge(Entry(MessageId(5, 7), 1001, source)) is OTHER
    assert witness.judge(Entry(MessageId(5, 7), 1000, other)) is OTHER
    assert witness.judge(Entry(MessageId(5, 8), 1000, source)) is GONE
    assert witness.judge(None) is GONE


def test_a_copy_of_the_witness_has_its_id_as_source_and_its_time():
    witness = Witness(T, MessageId(5, 7), 1000)
    assert witness.is_copied_to(Entry(MessageId(1, 1), 1000, Source("a", MessageId(5, 7))))
    assert not witness.is_copied_to(Entry(MessageId(1, 1), 1001, Source("a", MessageId(5, 7))))
    assert not witness.is_copied_to(Entry(MessageId(1, 1), 1000, Source("a", MessageId(5, 8))))
    assert not witness.is_copied_to(Entry(MessageId(5, 7), 1000))


def history(rnd):
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
        logs = history(rnd)
        for entry in logs["a"]:
            if entry.source is not None and entry.source.cluster == "c":
                continue
            witness = Witness.of(T, entry)
            own = next(each for each in logs["a"] if each.id == entry.id)
            assert witness.judge(own) is SAME
            found = next((each for each in logs["b"] if each.id == entry.id), None)
            verdict = witness.judge(found)
            assert verdict is not SAME
            is_copied = any(map(witness.is_copied_to, logs["b"]))
            assert is_copied <= (entry.source is None)
            seen.add((verdict, is_copied))
    assert seen == {(verdict, is_copied) for verdict in (OTHER, GONE) for is_copied in (True, False)}
