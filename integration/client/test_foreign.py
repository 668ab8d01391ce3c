"""Somebody else writes under a producer's name while its connection is lost: exact, or an error."""

from collections import Counter
from contextlib import closing

import pytest

from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import columns_of, number_of, numbered
from integration.fixtures.own_broker import own_proxied
from integration.helpers.faults import TO_BROKER, TO_CLIENT
from integration.helpers.task_runs import NAME, open_writer, task_of
from pulsar_spark.client import Client, ClientOptions
from pulsar_spark.errors import SendError
from tests.writes import send_all

BATCH = 5  # messages


pytestmark = pytest.mark.usefixtures("leaves_nothing")


BROKER = {"brokerDeduplicationEnabled": "true"}

cluster = own_proxied


@pytest.fixture
def other(cluster):
    """Somebody else, past the proxy."""
    with Client(ClientOptions(service_url=cluster.direct_url, operation_timeout=HANG)) as opened:
        yield opened


@pytest.fixture
def held_topic(admin, topic):
    """A topic whose data stay."""
    admin.create_held_topic(topic)
    return topic


def writer_of(client, topic, task, name=NAME):
    return open_writer(client, topic, task, name=name, batching_max_messages=BATCH)


def numbers(peer, topic):
    return [number_of(record) for record in peer.read_all(topic)]


@pytest.mark.parametrize("foreign", [5, 10, 15])
def test_another_program_of_the_same_name_is_noticed(client, peer, proxy, held_topic, foreign):
    """It wrote by ids that are pending here, up to the end of one of the three pending batches."""
    with closing(writer_of(client, held_topic, None)) as writer:
        send_all(writer, columns_of(numbered(10)))
        proxy.stall(TO_BROKER)
        writer.send(columns_of(numbered(15, first=10)))
        proxy.stall()
        proxy.cut_all()
        peer.produce(held_topic, numbered(foreign, first=1000), producer_name=NAME, initial_sequence_id=9)
        proxy.resume()
        with pytest.raises(SendError, match=f"somebody else.* under the producer name {NAME}"):
            writer.flush()
    assert numbers(peer, held_topic) == [*range(10), *range(1000, 1000 + foreign)]


@pytest.mark.parametrize("required", [True, False])
def test_another_run_of_a_task_is_noticed_and_the_next_one_completes_it(
    client, other, peer, proxy, held_topic, required
):
    def run(by, count):
        with (
            closing(task_of(by, required=required)) as dedup,
            closing(writer_of(by, held_topic, dedup)) as writer,
        ):
            send_all(writer, columns_of(numbered(count)))

    with (
        closing(task_of(client, required=required)) as dedup,
        closing(writer_of(client, held_topic, dedup)) as writer,
    ):
        send_all(writer, columns_of(numbered(10)))
        proxy.stall(TO_BROKER)
        writer.send(columns_of(numbered(15, first=10)))
        proxy.stall()
        proxy.cut_all()
        run(other, 20)
        proxy.resume()
        with pytest.raises(SendError, match=f"somebody else.* under the producer name {NAME}"):
            writer.flush()
    assert numbers(peer, held_topic) == list(range(20))
    run(client, 25)
    assert numbers(peer, held_topic) == list(range(25))


@pytest.mark.parametrize("name", [NAME, None])
@pytest.mark.parametrize("is_dedup", [True, False])
def test_what_was_stored_and_not_acknowledged_is_no_error(
    client, peer, admin, proxy, held_topic, is_dedup, name
):
    """It is found as it was sent, between what others write."""
    with (
        closing(task_of(client, required=True)) as dedup,
        closing(writer_of(client, held_topic, dedup if is_dedup else None, name)) as writer,
    ):
        send_all(writer, columns_of(numbered(10)))
        for first in range(10, 110, 50):
            proxy.stall(TO_CLIENT)
            stored = admin.stats(held_topic)["msgInCounter"] + 50
            writer.send(columns_of(numbered(50, first=first)))
            wait_until(lambda due=stored: admin.stats(held_topic)["msgInCounter"] >= due)
            peer.produce(held_topic, numbered(200, first=10**6))
            proxy.cut_all()
            proxy.resume()
            writer.flush()
    found = Counter(number for number in numbers(peer, held_topic) if number < 10**6)
    assert found == Counter(range(110))
