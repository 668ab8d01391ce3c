"""QueryPlanner on a fake broker, polled as Spark does: what comes is planned soon, and once."""

import random
import threading
from collections import Counter
from itertools import repeat

import pytest

from pulsar_spark.client import Client, ClientOptions, Deadline, PlanningClient
from pulsar_spark.client.consuming import consumer
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan import ends, partition, stream
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.fake_broker import HANG, FakeBroker, silence
from tests.fake_clients import Type
from tests.fake_topics import batch_section, chunk_sections, section_of
from tests.loops import a_few_of
from tests.spark.plan.simulated_spark import options_of

T = TopicName.parse("t")
PARTITIONS = [T.of_partition(number) for number in range(3)]
# Seconds in which news are to be planned: less than those after which all partitions are asked anyway.
SOON = 5.0


@pytest.fixture
def broker():
    with FakeBroker() as opened:
        opened.create(T, 3)
        yield opened


@pytest.fixture
def client(broker):
    with Client(ClientOptions(service_url=broker.url, operation_timeout=HANG)) as opened:
        yield opened


class Query:
    """A query from the topic's beginning, whose tasks give the ids of entries.

    Attributes:
        rows: how often each entry was read.
    """

    def __init__(self, broker, client, **options):
        self.options = options_of(Mode.STREAM, topic="t", startingOffsets="earliest", **options)
        self.broker, self.client = broker, PlanningClient(client)
        self.planner = QueryPlanner(self.options, self.client)
        self.rows = Counter()
        self.start = self.planner.initial()
        self.poll()

    def restart(self):
        """Stop the run, and begin another from the checkpoint."""
        self.planner.close()
        self.planner = QueryPlanner(self.options, self.client)

    def poll(self):
        """One trigger; a micro-batch where there is news."""
        self.planner.await_news()
        end = self.planner.latest(self.start)
        if end is self.start:
            return
        for each in self.planner.ranges(self.start, end):
            with self.broker.changed:
                topic = self.broker.topics[str(each.topic)]
                found = [one.id for one in topic.readable if topic.is_visible(one)]
            self.rows.update(
                (each.topic, one)
                for one in found
                if each.start.last_whole_entry < one <= each.end.whole_entry
            )
        self.start = end

    def reads(self, expected):
        """Poll until so many entries were read."""
        deadline = Deadline(SOON)
        while self.rows.keys() != expected:
            assert not deadline.passed, f"not planned: {sorted(expected - self.rows.keys())}"
            self.poll()


class Weather:
    """What may happen to a cluster, by chance."""

    def __init__(self, broker, seed):
        self.broker = broker
        self.random = random.Random(seed)
        self.expected = set()
        self.open = {}
        self.numbers = iter(range(10**6))
        self.query = None
        self.events = (
            *(self.publish, self.publish, self.publish, self.publish_batches, self.publish_large),
            *(self.publish_chunks, self.publish_wrong_count, self.transact, self.roll, self.trim),
            *(self.unload, self.cut, self.restart),
        )

    def happen(self, query):
        """One to three events; the query polls between them, or not. What is to be read by then."""
        for _ in range(self.random.randint(1, 3)):
            self.query = query
            self.random.choice(self.events)(self.random.choice(PARTITIONS))
            with self.broker.changed:
                for name in PARTITIONS:
                    topic = self.broker.topics[str(name)]
                    self.expected |= {(name, one.id) for one in topic.readable if topic.is_visible(one)}
            for _ in range(self.random.choice((0, 0, 1, 4))):
                query.poll()
        return self.expected

    def publish(self, name):
        count = self.random.choice((1, 1, 2, 5, 16, 17, 40))
        self.broker.publish(name, *[section_of(b"v")] * count)

    def publish_batches(self, name):
        self.broker.publish(name, *[batch_section([b"v"] * 30)] * self.random.randint(1, 6))

    def publish_large(self, name):
        self.broker.publish(name, *[section_of(b"x" * 30_000)] * self.random.randint(1, 6))

    def publish_chunks(self, name):
        self.broker.publish(name, *chunk_sections(b"x" * 10, 2, f"u{next(self.numbers)}"))

    def publish_wrong_count(self, name):
        self.broker.publish(name, section_of(b"v", num_messages_in_batch=(1 << 31) - 1))

    def transact(self, name):
        """Begin a transaction, or end the one that is open."""
        with self.broker.changed:
            topic = self.broker.topics[str(name)]
            if name in self.open:
                topic.end(self.open.pop(name), commit=self.random.random() < 0.5)
            else:
                self.open[name] = TxnId(0, next(self.numbers))
                for _ in range(self.random.randint(1, 20)):
                    topic.append(section_of(b"v"), self.open[name])
            self.broker.dispatch(topic)

    def roll(self, name):
        with self.broker.changed:
            self.broker.topics[str(name)].roll()

    def trim(self, name):
        """Remove what the query has acknowledged: whole ledgers that are not written to."""
        with self.broker.changed:
            topic = self.broker.topics[str(name)]
            mark = topic.cursors[self.query.start.subscription].mark
            for ledger, entries in list(topic.ledgers.items())[:-1]:
                if ledger < mark.ledger or (entries and entries[-1].id <= mark):
                    topic.trim(ledger)

    def restart(self, name):
        self.query.restart()

    def unload(self, name):
        self.broker.close_all(name)

    def cut(self, name):
        self.broker.cut()


@pytest.mark.parametrize("seed", a_few_of(4, 2))
def test_whatever_happens_is_planned_soon_and_once(broker, client, monkeypatch, seed):
    monkeypatch.setattr(partition, "_KNOWN_FOR", 0.005)
    monkeypatch.setattr(partition, "_IDLE_AFTER", 0.01)
    monkeypatch.setattr(ends, "_MIN_WAIT", 0.005)
    query, weather = Query(broker, client), Weather(broker, seed)
    try:
        for _ in range(20):
            query.reads(weather.happen(query))
        assert set(query.rows.values()) == {1}
    finally:
        query.planner.close()
    broker.wait_for(lambda: broker.open_consumers == [])


# ---- a broker that does not answer any more


def silence_all(broker):
    """From now on no command is answered."""
    for kind in pb.BaseCommand.Type.values():
        broker.script(kind, repeat(silence))


def test_a_frozen_broker_takes_few_threads_and_closing_waits_for_it_once(broker, client, monkeypatch):
    """It took a thread for each partition, and 5 s for 32 partitions, tails and watches each."""
    monkeypatch.setattr(stream, "PROMPT", 0.01)
    monkeypatch.setattr(consumer, "CLOSE_TIMEOUT", 0.01)
    broker.create("many", 300)
    options = options_of(Mode.STREAM, topic="many", startingOffsets="earliest")
    planner = QueryPlanner(options, PlanningClient(client))
    start = planner.initial()
    silence_all(broker)
    before = threading.active_count()
    for _ in range(20):
        planner.latest(start)
    assert threading.active_count() <= before + 1
    with broker.changed:
        asked = Counter(each.command.type for each in broker.commands)
    assert asked[Type.GET_LAST_MESSAGE_ID] <= 4 * 300, (
        "each was asked at its opening, as all are empty by two readers, and once again"
    )
    waits = []
    monkeypatch.setattr(
        consumer, "wait", lambda futures, seconds: waits.append(len(futures)) or ([], futures)
    )
    planner.close()
    assert len(waits) == 1
    assert threading.active_count() <= before + 1
