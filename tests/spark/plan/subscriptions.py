"""A subscription on three partitions of a cluster in memory, and where it stands."""

from pulsar_spark.client import Calls, InitialPosition
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.subscription import Subscription
from tests.spark.plan.simulated_cluster import SimulatedCluster

T = TopicName.parse("t")
P0, P1, P2 = (T.of_partition(number) for number in range(3))
EARLIEST, LATEST = InitialPosition.EARLIEST, InitialPosition.LATEST


def three_partitions():
    """Three partitions of three entries each."""
    found = SimulatedCluster()
    for topic in found.create("t", 3):
        topic.produce(3)
    return found


def opened(cluster, initial=EARLIEST, **options):
    subscription = Subscription(cluster, Calls(), "s", **options)
    subscription.open(dict.fromkeys((P0, P1, P2), initial))
    return subscription


def ask(subscription, topics, patience=None):
    """The last messages of partitions, by topic."""
    answers = subscription.ask([subscription.partitions[each] for each in topics], patience)
    return {partition.topic: answer for partition, answer in answers.items()}


def mark(cluster, topic=P0):
    return cluster.topics[topic].cursors["s"]


def marks(cluster):
    return [mark(cluster, each).entry for each in (P0, P1, P2)]


def processed(subscription, entry):
    for state in subscription.partitions.values():
        state.position = MessageId(10, entry)
