"""The commands ``send`` and ``peek`` against the real broker, beside another client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.helpers.peer import Record
from pulsar_spark.cli import main


@pytest.fixture
def run(cluster, capsys):
    """Run a command; gives the lines that it printed."""

    def run(*arguments):
        assert main([*arguments, "--service-url", cluster.service_url]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_what_is_sent_is_read_by_another_client(run, peer, topic):
    assert run("send", topic, "tea") == [f"sent to {topic}"]
    assert run("send", topic, "größer", "--key", "ann") == [f"sent to {topic}"]
    found = peer.read_all(topic)
    assert [(record.key, record.value) for record in found] == [(None, b"tea"), ("ann", "größer".encode())]


def test_peek_shows_the_first_messages(run, admin, peer, topic):
    admin.create_partitioned_topic(topic, 2)
    assert run("peek", topic) == []
    sent = [Record(b"v%d" % number, key=f"k{number}") for number in range(20)] + [Record(b"\xff")]
    peer.produce(topic, sent)
    shown: list[dict[str, Any]] = [json.loads(line) for line in run("peek", topic, "-n", "100")]
    expected = [(record.key, record.value.decode(errors="backslashreplace")) for record in sent]
    assert sorted((each["key"] or "", each["value"]) for each in shown) == sorted(
        (key or "", value) for key, value in expected
    )
    assert [each["topic"] for each in shown] == sorted(each["topic"] for each in shown)
    assert [json.loads(line) for line in run("peek", topic, "-n", "3")] == shown[:3]
    assert admin.durable_subscriptions(f"{topic}-partition-0") == []
