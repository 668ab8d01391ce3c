"""ChunkAssembler: what makes a message, what is given up, and its memory."""

import tracemalloc

import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.chunk_assembler import Assembled, Dropped, is_chunk
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.protocol.reading.chunk_logs import Log, held_bytes, key_of, metadata_of, whole


def test_what_is_a_chunk():
    assert is_chunk(metadata_of("a", 0, 2, 9))
    assert not is_chunk(metadata_of("a", 0, 1, 9))
    assert not is_chunk(pb.MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=0))


def test_chunks_in_order_are_a_message():
    log = Log()
    log.entries = 7
    assert log.take_all("a", [0, 1, 2]) == Assembled(MessageId(1, 7), memoryview(whole("a")), is_odd=False)
    assert log.chunks.pending == 0
    assert held_bytes(log.chunks) == 0
    assert not log.chunks.dropped


def test_messages_may_lie_mixed():
    log = Log()
    assert [log.take(uuid, number) for number in (0, 1) for uuid in "abc"] == [None] * 6
    assert log.chunks.pending == 3
    for place, uuid in enumerate("abc"):
        assert log.take(uuid, 2) == (MessageId(1, place), whole(uuid), False)


@pytest.mark.parametrize("numbers", [[0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 0, 1, 2], [0, 1, 1, 0, 1, 1, 1, 2]])
def test_what_is_sent_again_is_taken_once(numbers):
    log = Log()
    message = log.take_all("a", numbers)
    restart = len(numbers) - 1 - numbers[::-1].index(0)
    assert message == (MessageId(1, restart), whole("a"), False)
    assert not log.chunks.dropped


def test_a_message_that_is_sent_again_whole_comes_again():
    log = Log(max_pending=1)
    assert log.take_all("a", [0, 1, 2]).payload == whole("a")
    assert log.take("a", 2) is None
    assert log.take("a", 1) is None
    assert log.take_all("a", [0, 1, 2]) == (MessageId(1, 5), whole("a"), False)
    log.take("a", 0)
    log.take("b", 0)
    assert log.take_all("a", [1, 2]) is Dropped.NO_BEGINNING, "it had no room, and is to be read again"
    assert not log.chunks.dropped


@pytest.mark.parametrize(("before", "ahead"), [(1, 2), (2, 3), (1, -1), (1, 5), (2, 7)])
def test_a_chunk_out_of_order_is_ignored(before, ahead):
    log = Log()
    assert log.take_all("a", range(before), chunks=4) is None
    assert log.take("a", ahead, chunks=4, payload=b"?") in (None, Dropped.OUT_OF_ORDER)
    assert log.take_all("a", range(before, 4), chunks=4).payload == whole("a", 4)
    assert not log.chunks.dropped


def test_without_one_of_its_chunks_a_message_is_given_up():
    log = Log()
    assert log.take_all("a", [0, 2, 3], chunks=4) is Dropped.OUT_OF_ORDER
    assert log.chunks.dropped == {Dropped.OUT_OF_ORDER: 1}
    assert log.chunks.pending == 0
    assert log.take_all("a", [0, 1, 2, 3], chunks=4).payload == whole("a", 4)
    assert not log.chunks.dropped
    log = Log(max_pending=1)
    log.take_all("a", [0, 2])
    log.take("b", 0)
    assert log.chunks.dropped == {Dropped.OUT_OF_ORDER: 1}, "also when it has no room any more"


def test_only_the_last_chunk_asks_for_a_missing_beginning():
    log = Log()
    assert log.take("a", 1) is None
    assert log.take("a", 2) is Dropped.NO_BEGINNING
    assert log.chunks.dropped == {}
    for _ in range(2):
        log.chunks.count(Dropped.NO_BEGINNING)
    assert log.chunks.dropped == {Dropped.NO_BEGINNING: 2}
    log.chunks.finish(key_of("a"))
    assert log.take("a", 2) is None
    assert key_of("a") in log.chunks._finished


@pytest.mark.parametrize(
    ("first", "second", "total", "dropped"),
    [
        (b"1234", b"56", 6, None),
        (b"1234", b"56", 5, Dropped.SIZE),
        (b"1234", b"56", 7, Dropped.SIZE),
        (b"1234", b"", 3, Dropped.OUT_OF_ORDER),
        (b"1234", b"56", 0, Dropped.SIZE),
        (b"1234", b"56", -1, Dropped.SIZE),
        (b"", b"", 0, None),
    ],
)
def test_sizes_must_be_as_declared(first, second, total, dropped):
    log = Log()
    log.take("a", 0, chunks=2, payload=first, total=total)
    message = log.take("a", 1, chunks=2, payload=second, total=total)
    if dropped is None:
        assert message.payload == first + second
    else:
        assert message is dropped
        assert log.chunks.dropped == {dropped: 1}
    assert held_bytes(log.chunks) <= max(total, 0)


def test_a_message_that_takes_too_long_is_given_up():
    log = Log(expire=1.0)
    log.take("a", 0, now=100.0)
    log.take("b", 0, now=100.5)
    log.take("a", 1, now=101.0)
    assert log.take("a", 2, now=101.5) is Dropped.EXPIRED
    assert log.take_all("b", [1, 2], now=101.5).payload == whole("b")
    assert log.chunks.dropped == {Dropped.EXPIRED: 1}
    assert log.chunks.pending == 0
    patient = Log(expire=0.0)
    patient.take("a", 0, now=0.0)
    assert patient.take_all("a", [1, 2], now=1e9).payload == whole("a")


def test_a_message_that_begins_again_has_its_time_again():
    log = Log(expire=10.0)
    log.take("a", 0, now=100.0)
    log.take("a", 0, now=109.0)
    assert log.take_all("a", [1, 2], now=119.0).payload == whole("a")


def test_over_the_limit_the_oldest_is_to_be_read_again():
    log = Log(max_pending=2)
    for uuid in "abc":
        log.take_all(uuid, [0, 1])
    assert log.chunks.pending == 2
    assert log.take("a", 2) is Dropped.NO_BEGINNING
    assert log.take("b", 2).payload == whole("b")
    assert log.take("c", 2).payload == whole("c")
    assert not log.chunks.dropped


def test_over_the_limit_the_oldest_is_given_up():
    log = Log(max_pending=2, auto_ack_oldest=True)
    for uuid in "abc":
        log.take_all(uuid, [0, 1])
    assert log.chunks.dropped == {Dropped.TOO_MANY: 1}
    assert log.take("a", 2) is None
    assert log.take("b", 2).payload == whole("b")


def test_what_begins_again_is_the_youngest():
    log = Log(max_pending=2)
    for uuid in "abac":
        log.take(uuid, 0)
    assert log.take_all("b", [1, 2]) is Dropped.NO_BEGINNING
    assert log.take_all("a", [1, 2]).payload == whole("a")


def test_without_a_limit_all_are_kept():
    log = Log(max_pending=0)
    for number in range(200):
        log.take(str(number), 0)
    assert log.chunks.pending == 200


def test_declared_sizes_take_no_memory():
    log = Log()
    tracemalloc.start()
    try:
        for uuid in "abcdefghij":
            log.take(uuid, 0, chunks=2**31 - 1, payload=b"1", total=2**31 - 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert held_bytes(log.chunks) == 10


def test_long_uuids_are_not_kept():
    """They are as long as a producer likes; what differs at the end only is two messages."""
    log, long = Log(max_pending=0), "u" * (1 << 20)
    tracemalloc.start()
    try:
        for number in range(30):
            assert log.take(f"{long}{number}", 1, chunks=2, payload=b"", total=1) is Dropped.NO_BEGINNING
            log.chunks.finish(key_of(f"{long}{number}", 2, 1))
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    log.take(f"{long}a", 0, chunks=2, payload=b"", total=1)
    log.take(f"{long}b", 0, chunks=2, payload=b"", total=1)
    assert log.chunks.pending == 2


def test_a_message_takes_its_size_and_no_second_one():
    log = Log()
    chunk, chunks = memoryview(bytes(1 << 20)), 32
    total = chunks * len(chunk)
    tracemalloc.start()
    try:
        message = log.take_all("a", range(chunks), chunks=chunks, payload=chunk, total=total)
        assert tracemalloc.get_traced_memory()[1] < 1.3 * total
    finally:
        tracemalloc.stop()
    assert len(message.payload) == total


def test_finished_messages_are_not_remembered_for_ever():
    log = Log()
    for number in range(3000):
        log.take_all(str(number), [0, 1, 2])
    assert sum(key_of(str(number)) in log.chunks._finished for number in range(3000)) == 1000
