"""ChunkAssembler: what holds for any chunks."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.reading.chunk_assembler import Assembled, Dropped
from tests.protocol.reading.chunk_logs import Log, held_bytes, whole

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
