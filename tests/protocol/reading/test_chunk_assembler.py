"""ChunkAssembler: what makes a message, what is ignored, what is given up, and its memory."""

import tracemalloc
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading import chunk_assembler
from pulsar_spark.protocol.reading.chunk_assembler import (
    Assembled,
    ChunkAssembler,
    ChunkLimits,
    Dropped,
    is_chunk,
    message_key,
)
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each
from tests.work import calls


def held_bytes(chunks):
    """Bytes that have arrived of incomplete messages."""
    several = (choices for message in chunks._open.values() for choices in message.pieces)
    return sum(len(piece.payload) for choices in several for piece in choices)


def metadata_of(uuid, number, chunks, total, *, producer_name=b"p", publish_time=0, sequence_id=0):
    return pb.MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        uuid=uuid.encode(),
        chunk_id=number,
        num_chunks_from_msg=chunks,
        total_chunk_msg_size=total,
    )


def key_of(uuid, chunks=3, total=None):
    return message_key(metadata_of(uuid, 0, chunks, len(whole(uuid, chunks)) if total is None else total))


class Log:
    """A topic: each chunk that is taken is an entry of it, numbered from 0."""

    def __init__(self, **limits):
        self.chunks = ChunkAssembler(ChunkLimits(**limits))
        self.entries = 0

    def take(self, uuid, number, chunks=3, payload=None, total=None, now=0.0, **more):
        payload = text(uuid, number) if payload is None else payload
        total = len(whole(uuid, chunks)) if total is None else total
        message_id = MessageId(1, self.entries)
        self.entries += 1
        return self.chunks.take(metadata_of(uuid, number, chunks, total, **more), payload, message_id, now)

    def take_all(self, uuid, numbers, **more):
        """What the last of them gave; the others give nothing."""
        *first, last = [self.take(uuid, number, **more) for number in numbers]
        assert first == [None] * len(first)
        return last


def text(uuid, number):
    return f"{uuid}.{number};".encode()


def whole(uuid, chunks=3):
    return b"".join(text(uuid, number) for number in range(chunks))


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


# ---- properties

UUIDS = st.sampled_from("abcd")
LENGTHS = {"a": 2, "b": 3, "c": 5, "d": 2}


class Reference:
    """The rules in their plainest form: the numbers of the chunks that have come, by message."""

    def __init__(self):
        self.open = {}

    def take(self, uuid, number):
        """Whether a message is complete."""
        if number == 0:
            self.open.setdefault(uuid, -1)
        if uuid not in self.open or number <= self.open[uuid]:
            return False
        if number != self.open[uuid] + 1:
            return False
        self.open[uuid] = number
        if number == LENGTHS[uuid] - 1:
            del self.open[uuid]
            return True
        return False


@given(st.lists(st.tuples(UUIDS, st.integers(0, 4)), max_size=60))
def test_any_log_gives_what_the_rules_say(steps):
    log, reference = Log(), Reference()
    for uuid, number in steps:
        number = min(number, LENGTHS[uuid] - 1)
        message = log.take(uuid, number, chunks=LENGTHS[uuid])
        assert isinstance(message, Assembled) == reference.take(uuid, number)
        if isinstance(message, Assembled):
            assert message.payload == whole(uuid, LENGTHS[uuid])
        assert log.chunks.pending + log.chunks.dropped.total() == len(reference.open)


@st.composite
def resent(draw, uuid):
    """The chunks of one message as a producer that reconnects sends them: again from any it has sent."""
    numbers, sent = [], 0
    length = LENGTHS[uuid]
    for _ in range(draw(st.integers(0, 3))):
        upto = draw(st.integers(sent, length - 1))
        numbers += range(sent, upto)
        sent = draw(st.integers(0, upto))
    return [(uuid, number) for number in [*numbers, *range(sent, length)]]


@st.composite
def interleaved(draw):
    queues = [draw(resent(uuid)) for uuid in "abcd"]
    log = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        log.append(queue.pop(0))
    return log


@given(interleaved())
def test_producers_that_reconnect_lose_nothing(steps):
    log = Log()
    taken = [log.take(uuid, number, chunks=LENGTHS[uuid]) for uuid, number in steps]
    complete = Counter(bytes(message.payload) for message in taken if isinstance(message, Assembled))
    assert complete == {whole(uuid, length): 1 for uuid, length in LENGTHS.items()}
    assert not log.chunks.dropped
    assert log.chunks.pending == 0


@given(interleaved(), st.data())
def test_what_is_lost_costs_its_message_only(steps, data):
    lost = data.draw(st.sampled_from(steps))
    log = Log()
    taken = [log.take(uuid, number, chunks=LENGTHS[uuid]) for uuid, number in steps if (uuid, number) != lost]
    complete = Counter(bytes(message.payload) for message in taken if isinstance(message, Assembled))
    assert complete == {whole(uuid, length): 1 for uuid, length in LENGTHS.items() if uuid != lost[0]}
    assert log.chunks.dropped.total() + log.chunks.pending + taken.count(Dropped.NO_BEGINNING) >= 1


# The largest total that is declared below.
LARGEST = 36
# What the producers of a few messages declare of them: how many chunks, and how many bytes in all.
DECLARED = st.fixed_dictionaries({uuid: st.tuples(st.integers(2, 4), st.integers(-1, 20)) for uuid in "abcd"})
# A chunk as a producer cuts it: uuid, number, bytes.
HONEST = st.tuples(UUIDS, st.integers(0, 3), st.binary(max_size=9), st.none())
# One that contradicts the others of its message: it declares what it likes.
HOSTILE = st.tuples(
    UUIDS, st.integers(-2, 6), st.binary(max_size=9), st.tuples(st.integers(2, 5), st.integers(-1, 20))
)


@st.composite
def whole_message(draw):
    """All chunks of one message in order, and what they declare: they hold as much."""
    payloads = draw(st.lists(st.binary(max_size=9), min_size=2, max_size=4))
    declared = len(payloads), sum(map(len, payloads))
    uuid = draw(UUIDS)
    return [(uuid, number, payload, declared) for number, payload in enumerate(payloads)]


@st.composite
def any_chunks(draw):
    """Chunks in any order, and whole messages among them."""
    declared = draw(DECLARED)
    pieces = draw(st.lists(whole_message() | st.lists(HONEST | HOSTILE, max_size=6), max_size=15))
    return [
        (uuid, number, payload, own or declared[uuid])
        for piece in pieces
        for uuid, number, payload, own in piece
    ]


def completed(steps, **limits):
    """Take chunks in; check the bounds after each, and return how many messages they completed."""
    log = Log(**limits)
    count = 0
    for uuid, number, payload, (chunks, total) in steps:
        message = log.take(uuid, number, chunks=chunks, payload=payload, total=total)
        if isinstance(message, Assembled):
            count += 1
            assert len(message.payload) == total
        assert log.chunks.pending <= limits["max_pending"]
        assert held_bytes(log.chunks) <= limits["max_pending"] * 2 * LARGEST
    return count


@given(any_chunks(), st.integers(1, 3), st.booleans())
def test_whatever_comes_memory_is_bounded(steps, max_pending, auto_ack):
    completed(steps, max_pending=max_pending, auto_ack_oldest=auto_ack)


@given(any_chunks(), whole_message(), st.integers(1, 3), st.booleans())
def test_whatever_came_before_a_whole_message_is_completed(steps, message, max_pending, auto_ack):
    limits = {"max_pending": max_pending, "auto_ack_oldest": auto_ack}
    own = [(f"own {uuid}", *more) for uuid, *more in message]
    assert completed([*steps, *own], **limits) == completed(steps, **limits) + 1


@st.composite
def attacked(draw):
    """The chunks of one message in order, and a stranger's among them, which agree in all but bytes.

    None of them is the last one: that a stranger's comes before the right one cannot be told.
    """
    sizes = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    own = [(number, bytes([number]) * size, 5) for number, size in enumerate(sizes)]
    number = st.integers(-1, len(sizes) - 2) | st.just(len(sizes))
    payload = st.builds(lambda size: b"x" * size, st.integers(0, 5))
    strange = st.tuples(number, payload, draw(st.sampled_from([st.just(5), st.integers(4, 6)])))
    steps = []
    for each in own:
        steps += [*draw(st.lists(strange, max_size=3)), each]
    return steps, b"".join(payload for _, payload, _ in own)


@given(attacked())
def test_no_message_is_mixed_of_two_producers_chunks(attack):
    steps, own = attack
    log = Log()
    chunks, messages = 1 + max(number for number, _, _ in steps[-1:]), []
    for number, payload, time in steps:
        more = {"chunks": chunks, "total": len(own), "publish_time": time}
        message = log.take("a", number, payload=payload, **more)
        messages += [message] if isinstance(message, Assembled) else []
    assert [bytes(each.payload) for each in messages] in ([own], [])
    if not messages:
        assert log.chunks.dropped == {Dropped.CONTRADICTION: 1}
    strange = [(len(payload), time) for _, payload, time in steps if b"x" in payload]
    if sum(size for size, _ in strange) <= len(own) and all(time != 5 for _, time in strange):
        assert messages, "the stranger names another time"
