"""The command ``subscriptions`` against the real broker, with a checkpoint that Spark wrote."""

from collections.abc import Callable
from typing import Any

import pytest

from integration.fixtures.spark import Collector, drain
from integration.helpers.peer import Record
from pulsar_spark.cli import main
from pulsar_spark.client import Consumer, SubscriptionOptions
from pulsar_spark.client.net import admin as product
from pulsar_spark.errors import BusyError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire.commands import InitialPosition

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
Run = Callable[..., list[str]]


@pytest.fixture
def run(cluster, topic, capsys):
    """Run the command on the test's topic; gives what it printed, without the header and unneeded blanks."""

    def run(*arguments, code=0):
        command = ["subscriptions", "--admin-url", cluster.admin_url, "--topic", topic, *arguments]
        assert main(command) == code
        lines = capsys.readouterr().out.splitlines()
        return [" ".join(line.split()) for line in lines if not line.startswith("SUBSCRIPTION")]

    return run


def hold(client, topic, name):
    options = SubscriptionOptions(name=name, durable=True, initial=InitialPosition.EARLIEST)
    return Consumer(client, topic, options)


def test_only_what_nobody_needs_is_removed(pulsar_in_spark, client, peer, admin, run, topic, tmp_path):
    admin.create_partitioned_topic(topic, 2)
    parts = [TopicName.parse(topic).of_partition(number) for number in range(2)]
    peer.produce(topic, [Record(b"v", key=f"k{number}") for number in range(20)])
    checkpoint = tmp_path / "queries" / "a"
    drain(pulsar_in_spark.stream(topic), Collector(), checkpoint)
    (query,) = admin.durable_subscriptions(str(parts[0]))
    gone, held = f"spark-pulsar-{UUID}", f"spark-pulsar-{UUID.replace('0', '1')}"
    for part in parts:
        for name in (gone, held, f"other-{UUID}", f"spark-pulsar-more-{UUID}", "spark-pulsar"):
            hold(client, part, name).close()
    counts = [int(admin.internal_stats(str(part))["numberOfEntries"]) for part in parts]
    with hold(client, parts[1], held):
        whole = TopicName.parse(topic)
        listed = [
            f"{name} {whole} 2 {connected} {backlog} {found}"
            for name, connected, backlog, found in sorted(
                [
                    (query, "no", 0, checkpoint),
                    (gone, "no", sum(counts), "none"),
                    (held, "yes", sum(counts), "none"),
                ]
            )
        ]
        each = [line for line in run("--partitions", "--subscription", held) if line.startswith(held)]
        assert each == [
            f"{held} {part} 1 {connected} {count} not searched"
            for part, count, connected in zip(parts, counts, ("no", "yes"), strict=True)
        ]
        assert run("--checkpoint", str(tmp_path)) == [*listed, "2 unused; run with --remove to remove them"]
        named = ["--checkpoint", str(tmp_path), "--subscription", held, "--remove"]
        assert run(*named) == [*(line for line in listed if line.startswith(held)), "0 removed"]
        removed = f"removed {gone} from {whole} (2 partitions)"
        assert run("--checkpoint", str(tmp_path), "--remove") == [*listed, removed, "2 removed"]
    left = {query, held, f"other-{UUID}", f"spark-pulsar-more-{UUID}", "spark-pulsar"}
    assert [set(admin.subscriptions(str(part))) for part in parts] == [left] * 2
    assert run("--prefix", "other") == [f"other-{UUID} {whole} 2 no {sum(counts)} not searched"]


def test_a_subscription_that_is_in_use_is_not_removed(client, admin, cluster, topic):
    """Whatever was seen before: the broker itself refuses."""
    admin.create_topic(topic)
    name, ours = TopicName.parse(topic), product.Admin(cluster.admin_url)
    with hold(client, name, "s"):
        with pytest.raises(BusyError, match="connected consumers"):
            ours.remove_subscription(name, "s")
        assert ours.subscriptions(name) == ["s"]
    ours.remove_subscription(name, "s")
    assert ours.subscriptions(name) == []
    with pytest.raises(TopicNotFoundError, match="Subscription s not found"):
        ours.remove_subscription(name, "s")


def test_ledgers_and_topics(admin, peer, cluster, topic):
    admin.create_partitioned_topic(topic, 1)
    name, ours = TopicName.parse(topic).of_partition(0), product.Admin(cluster.admin_url)
    admin.create_subscription(str(name), "hold")
    ids: list[Any] = []
    for count in (3, 5):
        ids += peer.produce(topic, [Record(b"v")] * count)
        admin.unload(str(name))
    ids += peer.produce(topic, [Record(b"v")] * 7)
    last = {each.ledger_id(): each.entry_id() for each in ids}
    found = ours.ledgers(name)
    assert {each.id: each.entries - 1 for each in found if each.entries} == last
    assert all(each.size >= each.entries > 0 for each in found if each.id in last)
    assert [each.id for each in found] == sorted(each.id for each in found)
    assert MessageId(found[-1].id, found[-1].entries - 1) == MessageId(max(last), 6)
    assert name in ours.topics("public/default")
    with pytest.raises(TopicNotFoundError):
        ours.topics("public/no-such-namespace")
