"""Streams over short ledgers without retention: what is consumed goes away, and what is lost is told."""

import re

import pytest
from pyspark.errors import StreamingQueryException

from integration.broker.admin import topic_path
from integration.broker.waiting import wait_until
from integration.fixtures.own_broker import own_cluster
from integration.fixtures.spark import Collector, await_rows, drain, finish, start
from integration.helpers.background import again_and_again
from integration.helpers.cluster import SHORT_LEDGERS
from integration.helpers.peer import Peer, Record
from integration.helpers.triggers import Triggers
from pulsar_spark.spark.plan.offsets import Offsets

BROKER = SHORT_LEDGERS

cluster = own_cluster


@pytest.fixture
def produce(own_broker, topic):
    """Writes the numbers from the first to before the second, one an entry."""

    def write(first, end):
        with Peer(own_broker.service_url) as peer:
            peer.produce(topic, [Record(b"%d" % number) for number in range(first, end)])

    return write


def texts(*numbers):
    return [str(number) for number in numbers]


def ledgers(admin, topic):
    return [each["ledgerId"] for each in admin.internal_stats(topic)["ledgers"]]


def trim(admin, topic, ledger):
    """Have the broker drop what is consumed, up to a ledger."""

    def is_gone():
        admin.trim(topic)
        return ledger not in ledgers(admin, topic)

    wait_until(is_gone, interval=0.1)


def loss_of(action, topic):
    """Run what must end in loss; return what it says of it, with the range."""
    with pytest.raises(StreamingQueryException) as caught:
        action()
    text = str(caught.value)
    assert "[PULSAR_DATA_LOSS]" in text
    assert topic in text
    assert re.search(r"\(-?\d+:-?\d+, (\d+:-?\d+|the end)\]", text), text
    return text


# ---- compaction


@pytest.mark.parametrize("later", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_compaction_kept_outlives_the_ledgers_that_it_was_made_of(
    pulsar_in_spark, own_broker, admin, topic, checkpoint, later
):
    def write(first, count):
        with Peer(own_broker.service_url) as peer:
            numbers = range(first, first + count)
            peer.produce(topic, [Record(b"%d" % number, key=f"k{number % 16}") for number in numbers])

    admin.create_held_topic(topic)
    write(0, 32)
    admin.compact(topic)
    wait_until(lambda: admin.compaction_status(topic) == "SUCCESS")
    old = ledgers(admin, topic)[-1]
    admin.unload(topic)
    write(32, later)
    admin.delete_subscription(topic, "hold")
    trim(admin, topic, old)
    expected = texts(*range(16, 32 + later))
    rows = pulsar_in_spark.read(topic, readCompacted="true").collect()
    assert [bytes(row.value).decode() for row in rows] == expected
    sink = Collector()
    drain(pulsar_in_spark.stream(topic, readCompacted="true"), sink, checkpoint)
    assert sink.values == expected
    timed = Collector()
    reader = pulsar_in_spark.spark.readStream.format("pulsar").option("service.url", own_broker.service_url)
    options = {"topic": topic, "readCompacted": "true", "startingTime": "2020-01-01T00:00:00Z"}
    drain(reader.options(**options).load(), timed, checkpoint / "timed")
    assert timed.values == expected
    write(40, 3)
    drain(pulsar_in_spark.stream(topic, readCompacted="true"), sink, checkpoint)
    assert sink.values == [*expected, *texts(40, 41, 42)]


def test_limits_count_what_compaction_kept(pulsar_in_spark, own_broker, admin, topic, checkpoint):
    """The first 40 keys outlive their ledgers; ten more are in the log, too."""

    def write(first, end):
        with Peer(own_broker.service_url) as peer:
            peer.produce(
                topic, [Record(b"%d" % number, key=f"k{number % 50}") for number in range(first, end)]
            )

    admin.create_held_topic(topic)
    write(0, 80)
    admin.compact(topic)
    wait_until(lambda: admin.compaction_status(topic) == "SUCCESS")
    old = ledgers(admin, topic)[-1]
    admin.unload(topic)
    write(80, 83)
    admin.delete_subscription(topic, "hold")
    trim(admin, topic, old)
    sink = Collector()
    limited = pulsar_in_spark.stream(topic, readCompacted="true", maxMessagesPerTrigger="10")
    drain(limited, sink, checkpoint)
    sizes = [len(batches[-1]) for batches in sink.batches.values()]
    assert sink.values == texts(*range(30, 83))
    assert max(sizes) == 10, sizes


# ---- no loss


@pytest.mark.long
def test_what_was_consumed_may_be_trimmed(pulsar_in_spark, own_broker, admin, topic, checkpoint, produce):
    """Positions within a ledger, at its end, and at the end of one that is gone; reloaded and restarted."""
    sink = Collector()
    done = 0

    def more(count):
        nonlocal done
        produce(done, done + count)
        drain(pulsar_in_spark.stream(topic), sink, checkpoint)
        done += count
        assert sink.values == texts(*range(done))

    more(3)
    more(7)  # to the end of the second ledger
    consumed = ledgers(admin, topic)[:2]
    admin.unload(topic)
    for ledger in consumed:
        trim(admin, topic, ledger)
    more(0)
    more(12)
    produce(done, done + 4)
    done += 4
    own_broker.stop()
    own_broker.start()
    more(0)
    consumed = ledgers(admin, topic)[:1]
    admin.unload(topic)
    more(6)
    trim(admin, topic, consumed[0])
    more(1)
    (subscription,) = admin.durable_subscriptions(topic)
    assert admin.backlog(topic, subscription) == 0


def test_a_running_query_behind_trimmed_and_reloaded_ledgers(
    pulsar_in_spark, admin, topic, checkpoint, produce
):
    admin.create_topic(topic)
    sink = Collector()
    rows = pulsar_in_spark.stream(topic, maxMessagesPerTrigger="5")
    query = start(rows, sink, checkpoint, processingTime="700 milliseconds")
    try:
        await_rows(query, lambda: admin.durable_subscriptions(topic))
        produce(0, 20)
        first = ledgers(admin, topic)[0]
        await_rows(query, lambda: len(sink.values) >= 10)
        trim(admin, topic, first)
        admin.unload(topic)
        produce(20, 32)
        await_rows(query, lambda: len(sink.values) >= 32)
    finally:
        query.stop()
    assert query.exception() is None
    assert sink.values == texts(*range(32))


def test_a_subscription_that_was_removed_holds_again(pulsar_in_spark, admin, topic, checkpoint, produce):
    sink = Collector()
    produce(0, 3)
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    (subscription,) = admin.durable_subscriptions(topic)
    admin.delete_subscription(topic, subscription)
    produce(3, 4)
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    assert sink.values == texts(*range(4))
    produce(4, 12)
    admin.trim(topic)
    query = start(pulsar_in_spark.stream(topic), sink, checkpoint)
    try:
        await_rows(query, lambda: sink.values == texts(*range(12)))
        admin.delete_subscription(topic, subscription)
        produce(12, 14)  # all in the last ledger, so that none goes
        await_rows(query, lambda: sink.values == texts(*range(14)))
        wait_until(lambda: admin.durable_subscriptions(topic) == [subscription])
    finally:
        query.stop()
    assert query.exception() is None


# ---- loss


def remove_subscription(admin, topic, subscription):
    admin.delete_subscription(topic, subscription)


def skip_all(admin, topic, subscription):
    admin.request("POST", f"{topic_path(topic)}/subscription/{subscription}/skip_all")


def test_unprocessed_data_that_is_removed_while_stopped(pulsar_in_spark, admin, topic, checkpoint, produce):
    """Other ways to remove it: `helpers/losses.py`."""
    sink = Collector()
    produce(0, 3)
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    (subscription,) = admin.durable_subscriptions(topic)
    produce(3, 17)
    second = ledgers(admin, topic)[1]
    admin.delete_subscription(topic, subscription)
    trim(admin, topic, second)
    for _ in range(2):  # an error that was reported once is reported again
        loss_of(lambda: drain(pulsar_in_spark.stream(topic), sink, checkpoint), topic)
    drain(pulsar_in_spark.stream(topic, failOnDataLoss="false"), sink, checkpoint)
    left = [int(value) for value in sink.values]
    assert left[:3] == [0, 1, 2]
    assert left[3:] == list(range(left[3], 17))
    assert left[3] > 9
    produce(17, 19)
    drain(pulsar_in_spark.stream(topic), sink, checkpoint)
    assert sink.values[-2:] == texts(17, 18)


@pytest.mark.parametrize(("remove", "fails"), [(remove_subscription, True), (skip_all, False)])
def test_unprocessed_data_that_is_removed_under_the_running_query(
    pulsar_in_spark, admin, topic, checkpoint, produce, remove, fails
):
    produce(0, 3)
    held = [True]
    sink = Collector()

    def hold(batch, number):
        sink(batch, number)
        wait_until(lambda: number == 0 or not held[0])

    options = {"maxMessagesPerTrigger": "3", "failOnDataLoss": str(fails).lower()}
    query = start(pulsar_in_spark.stream(topic, **options), hold, checkpoint)
    try:
        await_rows(query, lambda: len(sink.values) == 3)
        produce(3, 6)
        await_rows(query, lambda: len(sink.values) > 3)
        produce(6, 19)
        (subscription,) = admin.durable_subscriptions(topic)
        third = ledgers(admin, topic)[2]
        remove(admin, topic, subscription)
        trim(admin, topic, third)
        held[0] = False
        if fails:
            loss_of(lambda: finish(query), topic)
        else:
            await_rows(query, lambda: sink.values[-1] == "18")
    finally:
        held[0] = False
        query.stop()
    assert sink.values[:4] == texts(*range(4))
    assert fails or 4 < len(sink.values) < 19


# ---- many ledgers


def test_a_range_over_many_ledgers_is_cut_evenly_while_its_topic_grows(own_broker, admin, topic, produce):
    admin.create_held_topic(topic)
    produce(0, 605)
    assert len(ledgers(admin, topic)) > 120
    with Triggers(own_broker.service_url, topic, minPartitions="12") as triggers:
        (batch,) = triggers.available_now()
        written = [605]

        def grow():
            produce(written[-1], written[-1] + 20)
            written.append(written[-1] + 20)

        with again_and_again(grow, 0):
            wait_until(lambda: len(written) > 1)  # it grows before, while and after the range is cut
            again = triggers.planner.ranges(batch.start, batch.end)
        assert again == batch.tasks
        counts = [len(triggers.rows_of(task)) for task in batch.tasks]
    assert (len(counts), min(counts), max(counts), sum(counts)) == (12, 50, 51, 605)
    with Triggers(
        own_broker.service_url, topic, minPartitions="12", **{"admin.url": own_broker.admin_url}
    ) as triggers:
        other = Offsets(triggers.planner.initial().subscription, batch.end.positions)
        by_admin = triggers.planner.ranges(triggers.planner.initial(), other)
    assert [(task.start, task.end) for task in by_admin] == [(task.start, task.end) for task in batch.tasks]
