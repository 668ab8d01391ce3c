"""The command ``admin`` against the real broker."""

import json

import pytest

from integration.broker.waiting import wait_until
from integration.helpers.peer import Record
from pulsar_spark.cli import main
from pulsar_spark.client import Consumer, SubscriptionOptions, close_consumers
from pulsar_spark.ids import TopicName
from pulsar_spark.wire.commands import InitialPosition


@pytest.fixture
def run(cluster, capsys):
    """Run the command; gives the JSON that it printed, or its text if there is none."""

    def run(*arguments, code=0):
        assert main(["admin", *arguments, "--admin-url", cluster.admin_url]) == code
        printed = capsys.readouterr()
        text = printed.err if code else printed.out
        return json.loads(text) if text[0] in '[{"0123456789tf' else text.strip()

    return run


def test_all_actions(run, admin, client, peer, topic):
    for create, size in ((("create", topic), 0), (("create", topic, "1"), 1)):
        assert run(*create) == "done"
        refused = run("create", topic, "4", code=1)
        assert "[PULSAR_NOT_ALLOWED]" in refused
        assert f"It has {size or 'no'} partitions" in refused
        if size == 0:
            assert run("delete", topic) == "done"
    assert run("partitions", topic, "2") == "done"
    assert run("partitions", topic) == 2
    peer.produce(topic, [Record(b"v", key=f"k{number}") for number in range(20)])
    options = SubscriptionOptions(name="mine", durable=True, initial=InitialPosition.EARLIEST)
    parts = [TopicName.parse(topic).of_partition(number) for number in range(2)]
    assert set(map(str, parts)) <= set(run("topics", "public/default"))
    close_consumers([Consumer(client, part, options) for part in parts])
    assert run("subscriptions", topic) == ["mine"]
    assert run("stats", topic)["subscriptions"]["mine"]["msgBacklog"] > 0
    internal = run("stats-internal", topic)["partitions"].values()
    assert sum(each["numberOfEntries"] for each in internal) > 0
    assert [run(action, topic) for action in ("compact", "unload")] == ["done"] * 2
    assert run("unsubscribe", topic, "mine") == "done"
    assert "mine" not in run("subscriptions", topic)
    namespace = f"public/{parts[0].base.local}"
    admin.create_namespace(namespace)
    assert run("retention", namespace).startswith("not set")
    assert run("retention", namespace, "--minutes", "60", "--megabytes", "-1") == "done"
    assert run("retention", namespace) == {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    assert run("policy", namespace, "retention") == run("retention", namespace)
    assert run("policy", namespace, "messageTTL", "60") == "done"
    assert run("policy", namespace, "messageTTL") == 60
    assert run("policy", namespace, "messageTTL", "--remove") == "done"
    assert run("policy", namespace, "messageTTL").startswith("not set")
    with pytest.raises(SystemExit):
        run("policy", namespace, "messageTtl")
    assert run("deduplication", namespace, "false") == "done"
    assert run("deduplication", namespace) is False
    # The broker's compaction reads the topic.
    wait_until(lambda: not any(each["consumers"] for each in run("stats", topic)["subscriptions"].values()))
    assert run("delete", topic) == "done"
    admin.delete_namespace(namespace)
