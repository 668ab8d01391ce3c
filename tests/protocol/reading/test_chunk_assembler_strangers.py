"""ChunkAssembler: chunks that contradict the others of their message."""

from functools import partial

import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading import chunk_assembler
from pulsar_spark.protocol.reading.chunk_assembler import Assembled, Dropped
from tests.loops import for_each
from tests.protocol.reading.chunk_logs import Log, held_bytes, text, whole
from tests.work import calls

STRANGE = [{"chunks": 4}, {"total": 100}, {"producer_name": b"q"}]


@pytest.mark.parametrize("more", STRANGE)
def test_what_does_not_agree_is_a_message_of_its_own(more):
    """The row was half a stranger's: with the same uuid, a chunk 0 between the others was all it took."""
    log = Log()
    log.take("a", 0)
    for number in (0, 1, 2):
        log.take("a", number, payload=forged(number), **more)
    log.take("a", 1)
    for number in (0, 1):
        log.take("a", number, payload=forged(number), **more)
    assert log.take("a", 2).payload == whole("a")


def forged(number):
    """As many bytes as the chunk has, of a stranger."""
    return text("a", number).replace(b"a", b"x")


@for_each("at", range(3))
@for_each("number", range(3))
@for_each("payload", [b"", b"x", b"longer than it is", b"x" * 1000])
def test_a_stranger_s_chunk_of_another_size_changes_nothing(at, number, payload):
    """With the names of the producer and the message, ahead or again, before or after the right one."""
    log = Log()
    log.take("a", 0)
    for each in (1, 2):
        if each == at:
            log.take("a", number, payload=payload)
        message = log.take("a", each)
    assert message.payload == whole("a")
    assert not log.chunks.dropped


@pytest.mark.parametrize("numbers", [[0, 1, 2], [0], [1]])
def test_the_chunks_of_one_attempt_belong_together(numbers):
    """A stranger's, or an application's second attempt, of the same size: they name another time."""
    log, own, other = Log(), {"publish_time": 5, "sequence_id": 3}, {"publish_time": 6, "sequence_id": 3}
    log.take("a", 0, **own)
    for number in numbers:
        log.take("a", number, payload=forged(number), **other)
    log.take("a", 1, **own)
    for number in {0, 1} & {*numbers}:
        log.take("a", number, publish_time=7)  # with the producer's bytes
    if 2 not in numbers:
        first = log.entries - 1 if numbers == [0] else 0
        assert log.take("a", 2, **own) == (MessageId(1, first), whole("a"), False)
    assert not log.chunks.dropped


def test_a_second_attempt_with_other_bytes_is_complete():
    log, first, second = Log(), {"publish_time": 5}, {"publish_time": 9}
    log.take_all("a", [0, 1], **first)
    other = b"".join(forged(number) for number in range(3))
    messages = [log.take("a", number, payload=forged(number), **second) for number in range(3)]
    assert messages == [None, None, (MessageId(1, 2), other, False)]


@pytest.mark.parametrize("numbers", [[0], [1], [0, 1]])
@pytest.mark.parametrize("is_before", [False, True])
def test_what_nobody_can_tell_apart_is_given_up(numbers, is_before):
    """A stranger's chunk that agrees in everything, also in size."""
    log = Log()
    for number in (0, 1):
        payloads = [text("a", number)] + [forged(number)] * (number in numbers)
        for payload in payloads[:: -1 if is_before else 1]:
            log.take("a", number, payload=payload)
    assert log.take("a", 2) is Dropped.CONTRADICTION
    assert log.chunks.dropped == {Dropped.CONTRADICTION: 1}
    assert log.chunks.pending == 0


def test_a_last_chunk_of_a_stranger_does_not_end_a_message():
    log, own = Log(), {"publish_time": 5}
    log.take_all("a", [0, 1], **own)
    log.take("a", 1, payload=forged(1), publish_time=7)
    assert log.take("a", 2, payload=b"wrong size", publish_time=9) is Dropped.SIZE
    assert log.take("a", 2, publish_time=9) is Dropped.CONTRADICTION, "nobody can tell"
    assert log.chunks.dropped == {Dropped.CONTRADICTION: 1}
    assert log.take("a", 2, **own).payload == whole("a")
    assert not log.chunks.dropped


def test_a_last_chunk_of_another_size_costs_the_same_in_a_message_of_any_length():
    """Strangers can write any number of them."""
    costs = []
    for chunks in (10, 1000):
        log, total = Log(), len(whole("a", chunks))
        log.take_all("a", range(chunks - 1), chunks=chunks, total=total)
        strange = partial(log.take, "a", chunks - 1, chunks, b"x", total)
        costs.append(calls(strange))
        assert log.chunks.dropped == {Dropped.SIZE: 1}
        assert log.take("a", chunks - 1, chunks).payload == whole("a", chunks)
    assert costs[1] < 2 * costs[0]


def test_strangers_last_chunks_hide_no_message_with_several_choices_however_many_they_are():
    log, own = Log(), {"publish_time": 5}
    log.take_all("a", [0, 1], **own)
    log.take("a", 1, payload=forged(1), publish_time=7)
    for _ in range(1000):
        assert log.take("a", 2, payload=b"wrong size", publish_time=9) is Dropped.SIZE
    assert log.take("a", 2, **own).payload == whole("a")


def test_choices_are_not_compared_again_and_again(monkeypatch):
    monkeypatch.setattr(chunk_assembler, "_MAX_EFFORT", 100)
    log, own, chunks = Log(), {"publish_time": 5}, 11
    log.take_all("a", range(chunks - 1), chunks=chunks, **own)
    log.take("a", 1, chunks, payload=forged(1), publish_time=7)
    judged = [log.take("a", chunks - 1, chunks, b"wrong size", publish_time=9) for _ in range(20)]
    assert judged == [Dropped.SIZE] * 11 + [Dropped.CONTRADICTION] * 9
    assert log.take("a", chunks - 1, chunks, **own) is Dropped.CONTRADICTION


def test_chunks_of_different_times_are_told_of():
    log = Log()
    times = zip(range(3), (5, 5, 6), strict=True)
    *_, message = [log.take("a", number, publish_time=time) for number, time in times]
    assert message == (MessageId(1, 0), whole("a"), True)
    log.take("a", 0, publish_time=7)
    *_, message = [log.take("a", number, publish_time=8) for number in range(3)]
    assert not message.is_odd, "that is one attempt, though its first chunk has come before, too"


def test_a_stranger_cannot_make_a_message_older():
    log = Log(expire=10.0)
    log.take("a", 0, now=100.0)
    log.take("a", 0, payload=b"x", now=1.0)
    log.take("a", 1, payload=b"x", now=1e9)
    log.take("a", 2, payload=b"x", now=1e9)
    assert log.take_all("a", [1, 2], now=105.0).payload == whole("a")
    assert not log.chunks.dropped


def test_what_contradicts_takes_no_more_memory_than_the_message():
    log, chunk = Log(), bytes(1000)
    log.take("a", 0, payload=chunk, total=3000)
    for number in range(100):
        log.take("a", number % 2, payload=b"%d" % number + chunk[5:], total=3000)
    assert held_bytes(log.chunks) <= 6000
    assert log.take("a", 1, payload=chunk, total=3000) is None
    assert log.take("a", 2, payload=chunk, total=3000) is Dropped.CONTRADICTION


@for_each(
    ("times", "refused", "is_complete"),
    [
        ((5, 5), [9], True),
        ((5, 5), [5, 9], False),
        ((5, 6), [9], False),
        ((5, 5), range(10, 74), False),  # there may have been more
    ],
)
def test_a_chunk_that_there_was_no_room_for_may_be_the_producer_s(times, refused, is_complete):
    """A stranger's chunks, which agree in all but bytes, may have come first."""
    log = Log()
    for number, time in enumerate(times):
        log.take("a", number, publish_time=time)
    for size in (12, 4):
        log.take("a", 0, payload=b"?" * size, publish_time=9)
    for time in refused:
        log.take("a", 0, payload=b"!", publish_time=time)
    message = log.take("a", 2, publish_time=5)
    assert message == (Assembled(MessageId(1, 0), whole("a")) if is_complete else Dropped.CONTRADICTION)
