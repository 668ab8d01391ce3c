"""OutgoingQueue: order, whole groups, and what still waits."""

import pytest

from pulsar_spark.protocol.connection import OutgoingQueue, SendMark


def test_groups_keep_their_order_and_are_taken_whole():
    queue = OutgoingQueue()
    assert not queue
    queue.put((b"a", memoryview(b"b"), bytearray(b"c")))
    queue.put((b"d",))
    queue.put((b"e", b"f"))
    assert queue
    assert [bytes(one) for one in queue.take(2, 100, 0.0)] == [b"a", b"b", b"c"]
    assert queue.take(2, 100, 0.0) == [b"d", b"e", b"f"]
    assert not queue
    assert queue.take(2, 100, 0.0) == []


@pytest.mark.parametrize(("size", "groups"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (10**9, 4)])
def test_no_more_groups_are_taken_than_reach_the_bytes_that_are_wanted(size, groups):
    queue = OutgoingQueue()
    mark = SendMark()
    for _ in range(4):
        queue.put((b"123", memoryview(b"4567890")), mark)
    assert len(queue.take(64, size, 1.0)) == 2 * groups
    assert mark.taken == groups


def test_what_is_urgent_is_taken_whole_and_counts():
    queue = OutgoingQueue()
    queue.put((b"a",))
    queue.put_urgent(b"1234")
    queue.put_urgent(b"5678")
    assert queue.take(64, 8, 0.0) == [b"1234", b"5678"]


def test_the_same_urgent_frame_waits_once():
    queue = OutgoingQueue()
    for frame in (b"a", b"a", b"b", b"b", b"a"):
        queue.put_urgent(frame)
    assert queue.take(64, 100, 0.0) == [b"a", b"b", b"a"]
    queue.put_urgent(b"a")
    assert queue.take(64, 100, 0.0) == [b"a"]


@pytest.mark.parametrize("count", [1, 10])
def test_what_is_urgent_is_taken_first_in_its_order(count):
    queue = OutgoingQueue()
    queue.put((b"a", b"b"))
    queue.put((b"c",))
    queue.put_urgent(b"1")
    queue.put_urgent(b"2")
    assert queue
    assert queue.take(count, 100, 0.0) == ([b"1", b"2"] if count == 1 else [b"1", b"2", b"a", b"b", b"c"])


def test_a_mark_says_what_waits_and_when_the_last_was_taken():
    queue, mark, other = OutgoingQueue(), SendMark(), SendMark()
    assert (mark.is_waiting, mark.taken_at) == (False, 0.0)
    queue.put((b"a",), mark)
    queue.put((b"b",), other)
    queue.put((b"c",))
    queue.put((b"d",), mark)
    seen = []
    for now in (5.0, 6.0, 7.0, 8.0):
        queue.take(1, 100, now)
        seen.append((mark.is_waiting, mark.taken_at, other.is_waiting, other.taken_at))
    assert seen == [
        (True, 5.0, True, 0.0),
        (True, 5.0, False, 6.0),
        (True, 5.0, False, 6.0),
        (False, 8.0, False, 6.0),
    ]
