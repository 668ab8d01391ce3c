"""What tests behind the proxy do again and again: fill topics, read them, write."""

from __future__ import annotations

from integration.broker import Admin
from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import BEGINNING, last_message, number_of, numbered, records_of
from integration.helpers.peer import Peer
from integration.helpers.proxy import Cut, Direction, Ending, Proxy
from pulsar_spark.client import Client
from pulsar_spark.ids import TopicName
from tests.ranges import read_range

TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT

# Bytes after which connections are cut. CONNECT and CONNECTED are shorter than 200 bytes, lookup and
# SUBSCRIBE or PRODUCER than 800; what follows are messages. Each early cut is followed by a late one, since
# the pauses between attempts grow until one succeeds.
EARLY = (0, 1, 4, 5, 20, 61, 130, 170, 210, 300, 420, 510)
LATE = (650, 801, 1000, 1499, 1811, 2222, 2603, 3007, 4001, 5003, 7003, 9999)


def cuts(direction: Direction) -> list[Cut]:
    """One for each place, in which both endings take turns."""
    places = [place for pair in zip(EARLY, LATE, strict=True) for place in pair]
    return [Cut(place, direction, list(Ending)[number // 2 % 2]) for number, place in enumerate(places)]


def fill(peer: Peer, admin: Admin, topic: str, count: int, batch_size: int) -> None:
    """Write numbered messages into a topic that keeps them."""
    admin.create_held_topic(topic)
    peer.produce(topic, numbered(count, size=40), batch_size=batch_size)


def numbers_read(client: Client, topic: str, window_bytes: int = 1 << 20) -> list[int]:
    name = TopicName.parse(topic)
    groups = read_range(
        client, name, BEGINNING, last_message(client, name), poll_timeout=HANG, window_bytes=window_bytes
    )
    return [number_of(record) for group in groups for record in records_of(group)]


def resume_after(proxy: Proxy, connections: int) -> None:
    """Let a stalled proxy go on as soon as there are more connections than these."""
    wait_until(lambda: proxy.connections > connections)
    proxy.resume()
