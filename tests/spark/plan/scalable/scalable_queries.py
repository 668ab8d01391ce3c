"""Queries of a scalable topic in memory, what happens to them, and what they have read."""

import json

from tests.spark.plan.simulated_segments import HASHES
from tests.spark.plan.simulated_spark import SimulatedSpark

KEYS = range(0, HASHES, HASHES // 16)


def query(topic, cluster, **options):
    options = {"startingOffsets": "earliest", "admin__url": "http://localhost:1"} | options
    return SimulatedSpark(cluster, str(topic.name), **options)


def play(words, topic, spark=None):
    """What happens, in words: a message of each key is written, the first segment split, all merged."""
    for word in words.split():
        match word:
            case "write":
                topic.write(KEYS)
            case "split":
                topic.split(topic.active[0])
            case "merge":
                topic.merge(*topic.active)
            case "clean":
                topic.clean_up()
            case "now":
                spark.restart(available_now=True)
            case _:
                spark.play(word)


def positions(spark):
    """The offset of a query as JSON, without the subscription."""
    return json.loads(spark.offsets[-1])["topics"]


def read(topic, spark):
    """The keys and numbers of all rows, batch by batch in the order of the offsets."""
    return [topic.written[row] for row in spark.rows]


def assert_complete(topic, spark):
    """Each message came once, and those of a key in order."""
    rows = read(topic, spark)
    assert len(rows) == sum(topic.counts.values())
    seen = dict.fromkeys(topic.counts, 0)
    for key, number in rows:
        assert number == seen[key], f"{number} of key {key} came where {seen[key]} was to come"
        seen[key] += 1
