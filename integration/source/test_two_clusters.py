"""A checkpoint of one cluster on another one: it moves, or is refused. Never in silence."""

import pytest

from integration.broker.waiting import wait_until
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.peer import Peer, Record
from integration.helpers.triggers import Triggers, logged
from pulsar_spark.errors import DataLossError, OtherClusterError

ROWS = 60


@pytest.fixture(scope="module")
def namespace(two_clusters):
    return two_clusters.create_namespace("source")


@pytest.fixture
def local(two_clusters, topic):
    """A topic that both clusters have, and do not replicate."""
    two_clusters.create_topic(topic)
    return topic


def ledger(admin, topic):
    """The ledger that a topic writes to, which is the cluster's newest if it was just created."""
    return admin.internal_stats(topic)["ledgers"][-1]["ledgerId"]


def burn_ledger(admin, topic):
    """Have a cluster use up one ledger; returns its number. No topic stays, which would take memory."""
    name = f"persistent://public/default/burned-{topic[-8:]}"
    admin.create_topic(name)
    burned = ledger(admin, name)
    admin.delete_topic(name)
    return burned


def move_on(admin, topic):
    """Let a topic without messages write to a new ledger; returns its number."""
    old = ledger(admin, topic)
    admin.unload(topic)
    wait_until(lambda: ledger(admin, topic) != old)
    return ledger(admin, topic)


def align(clusters, topic):
    """Give a topic without messages ledgers of the same number in both clusters."""
    numbers = {name: ledger(clusters.admin(name), topic) for name in "ab"}
    while numbers["a"] != numbers["b"]:
        low, high = sorted(numbers, key=numbers.__getitem__)
        admin, used = clusters.admin(low), numbers[low]
        while used < numbers[high] - 1:
            used = burn_ledger(admin, topic)
        numbers[low] = move_on(admin, topic)


def produce(clusters, name, topic, count=ROWS, first=0):
    with Peer(clusters.broker(name).service_url) as peer:
        peer.produce(topic, [Record(b"%d" % number) for number in range(first, first + count)])


def checkpoint(clusters, topic, **options):
    """What the checkpoint of a query has that has read all of a topic in the cluster a."""
    with Triggers(clusters.a.service_url, topic, **options) as triggers:
        batches = list(triggers.available_now())
        assert sum(map(triggers.count, batches)) == ROWS
    return logged(batches[-1].end)


def restart(cluster, topic, end, **options):
    """Continue from a checkpoint; returns the values of the next micro-batches."""
    with Triggers(cluster.service_url, topic, **options) as triggers:
        return [row[2] for row in triggers.read_all(end)]


@pytest.mark.parametrize("held", [False, True], ids=["no subscription", "a subscription"])
def test_a_query_moves_though_ids_overlap(two_clusters, geo_topic, held):
    align(two_clusters, geo_topic)
    produce(two_clusters, "a", geo_topic)
    two_clusters.await_replicated("a", geo_topic)
    end = checkpoint(two_clusters, geo_topic)
    assert end.witness is not None
    if held:
        two_clusters.b.admin.create_subscription(geo_topic, end.subscription)
    produce(two_clusters, "b", geo_topic, first=ROWS)
    others = [b"%d" % each for each in range(ROWS, 2 * ROWS)]
    assert restart(two_clusters.b, geo_topic, end) == others
    two_clusters.await_replicated("b", geo_topic)
    assert restart(two_clusters.a, geo_topic, end) == others


@pytest.mark.parametrize("ahead", ["a", "b"])
def test_a_query_moves_where_ids_do_not_overlap(two_clusters, geo_topic, ahead):
    admin = two_clusters.admin(ahead)
    other = ledger(two_clusters.admin("b" if ahead == "a" else "a"), geo_topic)
    while burn_ledger(admin, geo_topic) < other:
        pass
    assert move_on(admin, geo_topic) > other
    produce(two_clusters, "a", geo_topic)
    two_clusters.await_replicated("a", geo_topic)
    end = checkpoint(two_clusters, geo_topic)
    two_clusters.b.admin.create_subscription(geo_topic, end.subscription)
    with pytest.raises(OtherClusterError, match="remove the subscription here"):
        restart(two_clusters.b, geo_topic, end)
    two_clusters.b.admin.delete_subscription(geo_topic, end.subscription)
    produce(two_clusters, "b", geo_topic, first=ROWS)
    assert len(restart(two_clusters.b, geo_topic, end)) == ROWS


def test_a_cluster_without_copies_is_refused(two_clusters, local):
    align(two_clusters, local)
    produce(two_clusters, "a", local)
    end = checkpoint(two_clusters, local)
    produce(two_clusters, "b", local, first=ROWS)
    for loss in ("true", "false"):
        with pytest.raises(OtherClusterError, match="startingTime=20"):
            restart(two_clusters.b, local, end, failOnDataLoss=loss)
    assert two_clusters.b.admin.durable_subscriptions(local) == []


def test_a_cluster_without_the_copies_is_told_by_its_subscription(two_clusters, local):
    """It has ids on both sides of the checkpoint, and the subscription stands before: that looks fine."""
    align(two_clusters, local)
    produce(two_clusters, "a", local)
    end = checkpoint(two_clusters, local)
    two_clusters.b.admin.create_subscription(local, end.subscription)
    produce(two_clusters, "b", local, count=3)
    two_clusters.b.admin.unload(local)
    produce(two_clusters, "b", local, count=3)  # in a later ledger
    with pytest.raises(DataLossError, match="another cluster"):
        restart(two_clusters.b, local, end)


def test_a_witness_that_retention_has_deleted_is_no_other_cluster(two_clusters, topic):
    admin = two_clusters.a.admin
    admin.create_namespace(f"public/{topic[-8:]}")
    admin.set_retention(f"public/{topic[-8:]}", minutes=0, megabytes=0)
    own = f"persistent://public/{topic[-8:]}/t"
    admin.create_topic(own)
    produce(two_clusters, "a", own)
    with Triggers(two_clusters.a.service_url, own) as triggers:
        (batch,) = triggers.available_now()
        assert triggers.planner.latest(batch.end) == batch.end
        old = ledger(admin, own)
        wait_until(lambda: admin.backlog(own, batch.end.subscription) == 0)
    admin.unload(own)
    admin.trim(own)
    wait_until(lambda: old not in [each["ledgerId"] for each in admin.internal_stats(own)["ledgers"]])
    assert restart(two_clusters.a, own, batch.end) == []
    produce(two_clusters, "a", own, first=ROWS)
    assert batch.end.witness.id.ledger == old
    assert restart(two_clusters.a, own, batch.end) == [b"%d" % each for each in range(ROWS, 2 * ROWS)]


def test_hosts_of_both_clusters_leave_no_row_out_in_silence(two_clusters, local, spark):
    """Each of Spark's processes begins with any of them. The option's text forbids it."""
    produce(two_clusters, "a", local)
    for _ in range(2):
        move_on(two_clusters.b.admin, local)
    produce(two_clusters, "b", local)
    hosts = ",".join(each.service_url.removeprefix("pulsar://") for each in (two_clusters.a, two_clusters.b))
    found = []
    for _ in range(6):
        try:
            found.append(PulsarInSpark(spark, f"pulsar://{hosts}").read(local, minPartitions="4").count())
        except Exception as error:
            if "PULSAR_DATA_LOSS" not in str(error):
                raise
    assert set(found) <= {ROWS}
