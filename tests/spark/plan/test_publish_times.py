"""Start and end times where producers' clocks differ: batches and streams of random topics in memory."""

import random
from collections import Counter

import pytest

from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan.batch import plan_read
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import SimulatedSpark, options_of, rows_of

T = TopicName.parse("t")
BEGAN = 1_700_000_000_000
APART = 59_000  # maximum difference of two clocks, in ms


class RandomTopic:
    """A topic of two to five producers, each with a clock of its own, written in any number of parts."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.cluster = SimulatedCluster(read_compacted=self.random.random() < 0.1)
        (self.topic,) = self.cluster.create("t")
        self.clocks = [self.random.randint(0, APART) for _ in range(self.random.randint(2, 5))]
        self.now = BEGAN
        self.pace = self.random.choice([1, 100, 5_000, 60_000])

    @property
    def entries(self):
        return self.topic.kept if self.cluster.read_compacted else self.topic.entries

    def write(self, count):
        for _ in range(count):
            self.now += self.random.randint(0, self.pace)
            if self.random.random() < 0.1:
                self.topic.roll_over(self.topic.ledgers[-1] + self.random.randint(1, 20))
            is_chunked = self.random.random() < 0.05
            self.topic.produce(
                3 if is_chunked else 1,
                time=self.now + self.random.choice(self.clocks),
                messages=1 if is_chunked else self.random.randint(1, 3),
                chunks=is_chunked,
            )

    def compact(self):
        kept = self.random.sample(self.topic.ids, len(self.topic.ids) // 2)
        self.topic.compact_and_trim(*kept)

    def time(self):
        """Any time, often one at which a message was published, or the ms before or after it."""
        times = [entry.publish_time for entry in self.entries] or [self.now]
        near = self.random.choice(times) + self.random.randint(-1, 1)
        return self.random.choice([near, self.random.randint(min(times) - APART, max(times) + APART)])

    def number_at(self, time):
        """The number of entries before the first one of a time."""
        return next(
            (number for number, entry in enumerate(self.entries) if entry.publish_time >= time),
            len(self.entries),
        )


def read_batch(seed, **options):
    topic = RandomTopic(seed)
    topic.write(topic.random.randint(1, 60))
    if topic.cluster.read_compacted:
        topic.compact()
    begin, end = sorted((topic.time(), topic.time()))
    given = {"startingTime": str(begin), "endingTime": str(end)}
    given.pop(topic.random.choice(["startingTime", "endingTime", "neither"]), None)
    if topic.random.random() < 0.3:
        options["minPartitions"] = "3"
    if topic.cluster.read_compacted:
        options["readCompacted"] = "true"
    tasks = plan_read(options_of(Mode.BATCH, topic="t", **given, **options), topic.cluster)
    found = [each for task in tasks for each in topic.topic.between(task.start, task.end)]
    first = topic.number_at(begin) if "startingTime" in given else 0
    last = topic.number_at(end) if "endingTime" in given else None
    return found, [entry.id for entry in topic.entries[first:last]]


def read_stream(seed, **options):
    topic = RandomTopic(seed)
    topic.cluster.read_compacted = False
    topic.write(topic.random.randint(0, 40))
    begin = topic.time()
    if topic.random.random() < 0.3:
        options["maxMessagesPerTrigger"] = str(topic.random.randint(1, 5))
    if topic.random.random() < 0.3:
        options["minPartitions"] = "3"
    spark = SimulatedSpark(topic.cluster, startingTime=str(begin), **options)
    for _ in range(topic.random.randint(1, 4)):
        match topic.random.choice(["drain", "trigger", "fail", "restart"]):
            case "drain":
                spark.drain()
            case "trigger":
                spark.trigger()
            case "fail":
                spark.play("fail restart")
            case "restart":
                spark.restart()
        topic.write(topic.random.randint(0, 20))
    spark.drain()
    return spark.rows, rows_of(T, [entry.id for entry in topic.entries[topic.number_at(begin) :]])


def outcomes(topics, **options):
    """How many reads of how many topics had other rows than expected."""
    found = Counter()
    for seed in range(topics):
        for read in (read_batch, read_stream):
            rows, expected = read(seed, **options)
            found[read.__name__, rows == expected] += 1
            found["missing"] += len(set(expected) - set(rows))
            found["too early"] += len(set(rows) - set(expected))
    return found


@pytest.mark.parametrize("topics", [60, pytest.param(10_000, marks=pytest.mark.long)])
def test_nothing_from_the_first_message_in_time_on_is_missing(topics):
    assert outcomes(topics) == {
        ("read_batch", True): topics,
        ("read_stream", True): topics,
        "missing": 0,
        "too early": 0,
    }


def test_a_smaller_margin_loses_messages():
    """So the topics of these tests are such that it matters."""
    found = outcomes(20, publishTimeMargin="0")
    assert found["missing"] > 0
    assert found["read_batch", False] > 2
