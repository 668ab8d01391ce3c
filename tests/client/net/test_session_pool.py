"""SessionPool: which sessions are shared, opened again, and passed over."""

import random
import threading
from contextlib import ExitStack

import pytest

from pulsar_spark.client import Deadline, TlsOptions
from pulsar_spark.client.net.auth import Identity
from pulsar_spark.client.net.session import Purpose, SessionPool
from pulsar_spark.errors import ClosedError, ConnectError
from pulsar_spark.protocol.lookup import Address
from tests.client.clients import wait_until
from tests.fake_broker import HANG, FakeBroker, Held, silence
from tests.fake_clients import Type


@pytest.fixture
def first_host(monkeypatch):
    """The pool begins with the first host of the service URL, in place of one at random."""
    monkeypatch.setattr(random, "randrange", lambda count: 0)


def pool_of(*brokers, timeout=HANG, max_idle=HANG):
    return SessionPool(
        tuple(broker.address for broker in brokers),
        Identity(None, TlsOptions()),
        connection_timeout=timeout,
        keep_alive=HANG,
        max_idle=max_idle,
    )


def test_one_session_for_each_broker_and_purpose(broker):
    with FakeBroker() as other:
        pool = pool_of(broker)
        sessions = [
            pool.get(address, purpose, Deadline(HANG))
            for address in (broker.address, other.address)
            for purpose in Purpose
        ]
        again = [
            pool.get(address, purpose, Deadline(HANG))
            for address in (broker.address, other.address)
            for purpose in Purpose
        ]
        pool.close()
    assert len(set(sessions)) == 4
    assert again == sessions
    assert [len(one.seen(Type.CONNECT)) for one in (broker, other)] == [2, 2]


def test_calls_at_once_share_one_attempt(broker):
    held, pool, found = Held(broker), pool_of(broker), []
    broker.script(Type.CONNECT, [held])

    def get():
        found.append(pool.get(broker.address, Purpose.READ, Deadline(HANG)))

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    broker.wait_for(lambda: held.count)
    held.release()
    for thread in threads:
        thread.join(HANG)
    pool.close()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(broker.seen(Type.CONNECT)) == 1


def test_a_session_that_has_ended_is_opened_again(broker):
    pool = pool_of(broker)
    first = pool.service(Purpose.READ, Deadline(HANG))
    first.close()
    second = pool.service(Purpose.READ, Deadline(HANG))
    assert second is not first
    assert second.error is None
    pool.close()


def test_a_host_that_is_not_there_is_passed_over_and_not_tried_first_again(broker, first_host):
    with FakeBroker() as away:
        pass
    pool = pool_of(away, broker)
    session = pool.service(Purpose.READ, Deadline(HANG))
    assert session.address == broker.address
    assert pool.service(Purpose.READ, Deadline(HANG)) is session
    assert pool.service(Purpose.WRITE, Deadline(HANG)).address == broker.address
    pool.close()


def test_sessions_that_nobody_uses_do_not_stay(broker):
    """Lookups may name any number of addresses. One that is asked for again is opened again."""
    pool = pool_of(broker, max_idle=0.2)
    with ExitStack() as stack:
        others = [stack.enter_context(FakeBroker()) for _ in range(10)]
        for other in others:
            pool.get(other.address, Purpose.READ, Deadline(HANG))
        wait_until(lambda: not any(other.open_connections[0].is_served for other in others))
        assert pool.get(others[0].address, Purpose.READ, Deadline(HANG)).error is None
        assert len(others[0].seen(Type.CONNECT)) == 2
        pool.close()


def test_a_host_that_says_nothing_leaves_time_for_the_next(broker, first_host):
    with FakeBroker() as mute:
        mute.script(Type.CONNECT, [silence] * 9)
        pool = pool_of(mute, broker)
        session = pool.service(Purpose.READ, Deadline(1.6))
        assert session.address == broker.address
        pool.close()
    assert len(mute.seen(Type.CONNECT)) == 1


def test_where_no_host_answers_the_first_error_is_raised(first_host):
    with FakeBroker() as first, FakeBroker() as second:
        pass
    pool = pool_of(first, second)
    with pytest.raises(ConnectError, match=f"cannot connect to {first.address}"):
        pool.service(Purpose.READ, Deadline(HANG))
    pool.close()


def test_after_the_end_no_session_is_opened(broker):
    pool = pool_of(broker)
    session = pool.service(Purpose.READ, Deadline(HANG))
    pool.close()
    assert session.error is not None
    with pytest.raises(ClosedError):
        pool.service(Purpose.READ, Deadline(HANG))
    assert len(broker.seen(Type.CONNECT)) == 1


def test_a_host_that_takes_all_its_time_takes_none_of_the_others(monkeypatch, first_host):
    """Each gets its part of what is left, and the first leaves nothing of its own."""
    clock, given = [0.0], []
    monkeypatch.setattr("pulsar_spark.client.net.deadline.time.monotonic", lambda: clock[0])
    pool = SessionPool(
        tuple(Address("host", port, tls=False) for port in (1, 2, 3)),
        Identity(None, TlsOptions()),
        connection_timeout=HANG,
        keep_alive=HANG,
        max_idle=HANG,
    )

    def takes_its_time(address, purpose, deadline):
        given.append(deadline.left)
        clock[0] += deadline.left
        raise ConnectError(f"nothing of {address}")

    monkeypatch.setattr(pool, "get", takes_its_time)
    with pytest.raises(ConnectError):
        pool.service(Purpose.READ, Deadline(30.0))
    assert given == pytest.approx([10.0, 10.0, 10.0])
