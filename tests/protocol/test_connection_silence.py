"""One connection without its socket: keep-alive, and a peer that owes an answer."""

import pytest

from pulsar_spark.errors import ConnectError
from pulsar_spark.protocol import connection as connection_module
from pulsar_spark.protocol.connection import Silent
from pulsar_spark.wire import commands
from tests.protocol.connections import (
    DOUBT,
    KEEP_ALIVE,
    PING,
    PONG,
    connected_frame,
    kinds,
    lookup,
    sent,
    success,
)

# ---- keep-alive


def test_ping_is_answered_at_once(ready):
    assert ready.receive(PING, 1) == []
    assert kinds(sent(ready)) == ["PONG"]


def test_pings_are_answered_also_before_connected(fresh):
    sent(fresh)
    for _ in range(3):
        assert fresh.receive(PING, 1) == []
        assert kinds(sent(fresh)) == ["PONG"]


def test_a_peer_that_sends_pings_and_does_not_read_gets_one_pong(ready):
    for _ in range(100):
        ready.receive(PING * 1000, 1)
    assert kinds(sent(ready)) == ["PONG"]


def test_a_ping_goes_out_after_each_silent_interval(ready):
    assert ready.next_deadline == KEEP_ALIVE
    ready.tick(KEEP_ALIVE - 0.001)
    assert sent(ready) == []
    ready.tick(KEEP_ALIVE)
    assert kinds(sent(ready)) == ["PING"]
    ready.tick(KEEP_ALIVE + 0.001)
    assert sent(ready) == []


@pytest.mark.parametrize("heard", [PONG, PING, success(99), PONG[:3]])
def test_whatever_is_heard_puts_the_ping_off(ready, heard):
    ready.receive(heard, 20)
    sent(ready)
    ready.tick(KEEP_ALIVE)
    assert sent(ready) == []
    ready.tick(20 + KEEP_ALIVE)
    assert kinds(sent(ready)) == ["PING"]


def test_silence_of_two_intervals_is_death(ready):
    ready.tick(KEEP_ALIVE)
    ready.tick(2 * KEEP_ALIVE - 0.001)
    with pytest.raises(ConnectError, match="60 s"):
        ready.tick(2 * KEEP_ALIVE)


def test_a_pong_in_the_last_moment_keeps_it_alive(ready):
    ready.tick(KEEP_ALIVE)
    ready.receive(PONG, 59)
    ready.tick(60)
    assert ready.tick(59 + 2 * KEEP_ALIVE - 1) == []
    with pytest.raises(ConnectError):
        ready.tick(59 + 2 * KEEP_ALIVE)


def test_what_this_client_sends_is_no_sign_of_the_peer_s_life(ready):
    for now in range(0, 2 * KEEP_ALIVE, 10):
        ready.outgoing.put((commands.flow(1, 1),))
        ready.tick(now)
    with pytest.raises(ConnectError):
        ready.tick(2 * KEEP_ALIVE)


def test_a_peer_that_takes_bytes_lives_though_it_says_nothing(ready):
    for time in range(1, 200, 20):
        ready.hear(time)
        assert ready.tick(time) == []
    with pytest.raises(ConnectError):
        ready.tick(181 + 2 * KEEP_ALIVE)


# ---- a peer that owes an answer


def test_how_long_a_peer_may_be_silent_does_not_depend_on_the_time_left_to_connect():
    hasty = connection_module.Connection(0, keep_alive=30, timeout=0.01, patience=10)
    hasty.request(lookup, 0, 60)
    assert hasty.next_deadline == 0.01
    hasty.receive(connected_frame(), 0)
    assert hasty.next_deadline == pytest.approx(4.5)


def test_a_peer_that_answers_neither_a_request_nor_a_ping_is_silent(ready):
    ready.receive(PONG, 8)
    ready.request(lookup, 10, 60)
    sent(ready)
    assert ready.next_deadline == 10 + DOUBT
    assert ready.tick(10 + DOUBT - 0.001) == []
    assert ready.tick(10 + DOUBT) == [Silent(None)]
    assert kinds(sent(ready)) == ["PING"]
    assert ready.next_deadline == 10 + 2 * DOUBT
    (silent,) = ready.tick(10 + 2 * DOUBT)
    assert str(silent.error) == (
        "[PULSAR_CONNECT] the broker at host:6650 has sent nothing for 9.0 s, and answers no LOOKUP, PING: "
        "this client closed the connection. Check the network and the broker's health. "
        "pulsar.client.connectionTimeoutMs is the time that a silent connection is given"
    )


@pytest.mark.parametrize("heard", [PONG, PING, success(99)])
def test_a_slow_broker_that_answers_pings_is_not_silent(ready, heard):
    """As one that loads a topic, or restores its transactions after a restart."""
    ready.request(lookup, 0, 60)
    for count in range(1, 12):
        now = count * DOUBT
        assert ready.tick(now) == [Silent(None)]
        ready.receive(heard, now)


def test_one_that_has_not_been_pinged_is_not_silent(ready):
    """This client may have slept; the PONG had no time to come."""
    ready.request(lookup, 0, 60)
    assert ready.tick(40) == [Silent(None)]
    assert ready.tick(40 + DOUBT - 0.001) == []


def test_requests_one_after_the_other_are_one_silence(ready):
    for now in range(1, 8, 2):
        ready.request(lookup, now, 1)
        ready.tick(now + 1)
    ready.request(lookup, 9, 60)
    assert ready.tick(9) == [Silent(None)]
    (silent,) = ready.tick(9 + DOUBT)
    assert "nothing for 12.5 s" in str(silent.error)


def test_a_connection_that_is_only_idle_is_not_silent(ready):
    ready.request(lookup, 0, 3)
    assert len(ready.tick(3)) == 1
    assert ready.tick(25) == []
    assert kinds(sent(ready)) == ["LOOKUP"]


def test_a_probe_is_answered_as_soon_as_a_request(ready):
    ready.ping(20)
    ready.ping(22)
    assert kinds(sent(ready)) == ["PING", "PING"]
    assert ready.tick(20 + DOUBT - 0.001) == []
    (silent,) = ready.tick(20 + DOUBT)
    assert "answers no PING:" in str(silent.error)


def test_a_probe_that_is_answered_is_forgotten(ready):
    ready.ping(20)
    ready.receive(PONG, 21)
    sent(ready)
    assert ready.tick(50) == []
    assert sent(ready) == []


def test_a_probe_is_answered_by_its_own_pong_only(ready):
    """What the peer sent before it had read the probe says nothing about what was sent before the probe."""
    ready.ping(20)
    ready.ping(21)  # what was sent between the two is lost, and all after it
    ready.receive(PONG + PING, 21.5)
    assert ready.tick(21.5 + DOUBT) == [Silent(None)]
    (silent,) = ready.tick(21.5 + 2 * DOUBT)
    assert "answers no PING:" in str(silent.error)


def test_one_that_must_be_borne_is_pinged_again(ready):
    """Its caller does not end a connection with pending entries; after two keep-alive intervals it does."""
    ready.request(lookup, 0, 90)
    sent(ready)
    for count in range(1, 14):
        (silent,) = ready.tick(count * DOUBT)
        assert (silent.error is None) == (count == 1)
        assert kinds(sent(ready)) == ["PING"]
    with pytest.raises(ConnectError, match="60 s"):
        ready.tick(60)
