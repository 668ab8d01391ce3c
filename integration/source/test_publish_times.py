"""Start and end times where producers' clocks differ: which messages a batch and a stream read."""

import json
import random
from collections.abc import Iterator
from itertools import islice

import pytest

from integration.fixtures.spark import Collector, drain
from integration.helpers.raw import RawConnection, RawProducer

BEGAN = 1_700_000_000_000
APART = 59_000  # maximum difference of two clocks, in ms
# Publish times in ms from BEGAN on, and a time, of the losses that a search without a margin had.
EXAMPLES = (
    ([-2_000, 1_000, -1_000], 0),  # the example of the docs
    ([-60_000, *range(30), -1], 0),  # the last message is 1 ms too early
    ([-1, -60_000, -1, -59_000], 0),  # all are too early
)


class Topics:
    """Topics, and the publish times of their messages; a message's value is its number in its topic."""

    def __init__(self, service_url, admin, namespace, count):
        self._service_url, self._admin = service_url, admin
        self._random = random.Random(count)
        self.sent: dict[str, list[int]] = {
            f"persistent://{namespace}/{number}": [] for number in range(count)
        }
        self._times: list[Iterator[int]] = [iter(times) for times, _ in EXAMPLES]
        self._times += [_random_times(self._random) for _ in range(count - len(EXAMPLES))]

    def write(self, count):
        """Write ``count`` messages to each topic, and of an example those that are left."""
        with RawConnection(self._service_url) as connection:
            for (topic, sent), times in zip(self.sent.items(), self._times, strict=True):
                if sent and self._random.random() < 0.2:
                    self._admin.unload(topic)  # begins another ledger
                producer = RawProducer(connection, topic)
                for time in islice(times, count):
                    producer.send(b"%d" % len(sent), publish_time=BEGAN + time)
                    sent.append(BEGAN + time)
                producer.close()

    def any_times(self):
        """A time of each topic: one of a message, or any."""
        found = {}
        for topic, sent in self.sent.items():
            between = self._random.randint(min(sent) - APART, max(sent) + APART)
            found[topic] = self._random.choice([self._random.choice(sent), between])
        return found

    def starts(self):
        """A time of each topic: of an example its own, of the others any."""
        examples = dict(zip(self.sent, (BEGAN + time for _, time in EXAMPLES), strict=False))
        return self.any_times() | examples

    def expected(self, first, last=None):
        """The numbers of the messages from the first one of a time to the one before that of another."""
        found = {}
        for topic, sent in self.sent.items():
            end = len(sent) if last is None else _number_at(sent, last[topic])
            found[topic] = list(range(_number_at(sent, first[topic]), end))
        return {topic: numbers for topic, numbers in found.items() if numbers}


def _random_times(chosen):
    """Publish times by two to five clocks, without an end."""
    clocks = [chosen.randint(0, APART) for _ in range(chosen.randint(2, 5))]
    now, pace = 0, chosen.choice([100, 5_000, 60_000])
    while True:
        now += chosen.randint(0, pace)
        yield now + chosen.choice(clocks)


def _number_at(sent, time):
    return next((number for number, each in enumerate(sent) if each >= time), len(sent))


def numbers(rows):
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["__topic"], []).append(int(row["value"]))
    return found


@pytest.mark.parametrize("count", [5, pytest.param(300, marks=pytest.mark.long)])
def test_nothing_from_the_first_message_in_time_on_is_missing(
    pulsar_in_spark, admin, namespace, checkpoint, count
):
    admin.set_retention(namespace, minutes=-1, megabytes=-1)
    world = Topics(pulsar_in_spark.service_url, admin, namespace, count)
    world.write(40)
    options = {"service.url": pulsar_in_spark.service_url, "topics": ",".join(world.sent)}
    for _ in range(1 if count < 100 else 4):
        start, end = world.starts(), world.any_times()
        end = {topic: max(start[topic], time) for topic, time in end.items()}
        times = {"startingTime": json.dumps(start), "endingTime": json.dumps(end)}
        batch = pulsar_in_spark.spark.read.format("pulsar").options(**options, **times).load()
        assert numbers(batch.collect()) == world.expected(start, end)
    start, sink = world.starts(), Collector()
    stream = pulsar_in_spark.spark.readStream.format("pulsar").options(**options)
    rows = stream.option("startingTime", json.dumps(start)).load()
    drain(rows, sink, checkpoint)
    assert numbers(sink.rows) == world.expected(start)
    world.write(10)
    drain(rows, sink, checkpoint)
    assert numbers(sink.rows) == world.expected(start)
