"""Two clusters in memory, and queries that move between them."""

import json
from collections import Counter
from dataclasses import replace

from pulsar_spark.client import Source
from pulsar_spark.spark.plan.offsets import Offsets
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import SimulatedSpark, T

TIME = 1_000_000  # the simulated cluster's clock begins here, in ms


class Pair:
    """Two clusters, `a` and `b`, that have a topic; copies are made when a test wants them."""

    def __init__(self, ledger=10, partitions=0):
        self.a, self.b = SimulatedCluster(), SimulatedCluster()
        for each, number in ((self.a, 10), (self.b, ledger)):
            each.create("t", partitions, ledger=number)
        self.sent = Counter()

    def topic(self, name, number=None):
        topic = T if number is None else T.of_partition(number)
        return (self.a if name == "a" else self.b).topics[topic]

    def copy(self, name="a", number=None, *, count=None, back=0):
        """Copy entries to the other cluster; ``back`` of those that were copied again."""
        source, target = self.topic(name, number), self.topic("b" if name == "a" else "a", number)
        own = [each for each in source.entries if each.source is None]
        first = self.sent[name, number] - back
        last = len(own) if count is None else self.sent[name, number] + count
        for each in own[first:last]:
            target.produce(time=each.publish_time, messages=each.messages)
            target.entries[-1] = replace(target.entries[-1], source=Source(name, each.id))
        self.sent[name, number] = last

    def origins(self, rows, name="b"):
        """Where rows of a cluster were produced."""
        found, topics = [], (self.a if name == "a" else self.b).topics
        for topic, place in rows:
            (entry,) = [each for each in topics[topic].entries if each.id == place]
            found.append((name, place) if entry.source is None else tuple(entry.source))
        return found


def begun(pair, count=5, **options):
    """A query that has read a number of entries on `a`."""
    pair.topic("a").produce(count, time=TIME)
    spark = SimulatedSpark(
        pair.a, startingOffsets="earliest", predefinedSubscription="s", publishTimeMargin="0", **options
    )
    spark.drain()
    return spark


def begun_in_two():
    """Two partitions on `a`, and a query that has read three entries of each."""
    pair = Pair(partitions=2)
    for number in range(2):
        pair.topic("a", number).produce(3, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="0")
    spark.drain()
    return pair, spark


def unfinished_in_two():
    """The same, and a micro-batch of two copied entries of each that did not finish."""
    pair, spark = begun_in_two()
    for number in range(2):
        pair.topic("a", number).produce(2, time=TIME)
        pair.copy(number=number)
    spark.trigger(fails=True)
    return pair, spark


def move(spark, cluster):
    """Stop it and start it on another cluster."""
    spark.stop()
    spark.cluster = cluster
    spark.start()


def last(spark, number=-1):
    return Offsets.from_json(json.loads(spark.offsets[number]))
