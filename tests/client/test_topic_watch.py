"""TopicWatch: what comes and goes shows without a question, and lost watches are opened again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client import TopicWatch, watches
from pulsar_spark.errors import BrokerError, DeadlineError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, hurry, wait_until
from tests.fake_broker import FakeBroker, refuses, silence
from tests.fake_clients import Type

PATTERN = TopicPattern.parse("persistent://public/default/wanted.*")


@pytest.fixture(autouse=True)
def time_passes(monkeypatch):
    """A clock of the watch's own that a test moves on; gives how."""
    now = [1000.0]

    class Clock:
        @staticmethod
        def monotonic():
            return now[0]

    def pass_by(seconds):
        now[0] += seconds

    monkeypatch.setattr(watches, "time", Clock)
    return pass_by


def changed(watch):
    return watch.take_changes() != []


def settle(client):
    """What the broker sent before has come."""
    client.topics_of_namespace("public", "default")


def test_it_changes_when_it_is_opened_and_when_a_wanted_topic_comes_or_goes(broker, client):
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        assert not changed(watch)
        commands = len(broker.commands)
        broker.create("unwanted")
        broker.create("persistent://public/other/wanted")
        settle(client)
        assert not changed(watch)
        broker.create("wanted-1")
        settle(client)
        assert changed(watch)
        assert not changed(watch)
        broker.create("wanted-2", 2)
        broker.delete("wanted-2-partition-1")
        settle(client)
        assert changed(watch)
        assert not changed(watch)
        assert len(broker.commands) == commands + 3  # those of this test
    (asked,) = broker.seen(Type.WATCH_TOPIC_LIST)
    assert asked.namespace == "public/default"
    broker.wait_for_command(Type.WATCH_TOPIC_LIST_CLOSE)


def test_what_was_deleted_is_told_once(broker, client):
    with TopicWatch(client, PATTERN) as watch:
        broker.create("wanted", 2)
        broker.delete("wanted-partition-1")
        broker.create("wanted-partition-1")
        broker.create("unwanted")
        broker.delete("unwanted")
        settle(client)
        first, second, other = (
            TopicName.parse(name) for name in ("wanted-partition-0", "wanted-partition-1", "unwanted")
        )
        assert not watch.take_deleted(first)
        assert watch.take_deleted(second)
        assert not watch.take_deleted(second)
        assert not watch.take_deleted(other)


def test_what_was_deleted_may_be_forgotten(broker, client):
    first, second = TopicName.parse("wanted-1"), TopicName.parse("wanted-2")
    with TopicWatch(client, PATTERN) as watch:
        watch.forget_deleted([first])
        for topic in (first, second):
            broker.create(str(topic))
            broker.delete(str(topic))
        settle(client)
        watch.forget_deleted([first])
        assert [watch.take_deleted(topic) for topic in (first, second)] == [False, True]


def test_only_the_last_deletions_are_remembered(broker, client, monkeypatch):
    monkeypatch.setattr(watches, "_MAX_DELETED", 2)
    with TopicWatch(client, PATTERN) as watch:
        topics = [TopicName.parse(f"wanted-{number}") for number in range(3)]
        for topic in topics:
            broker.create(str(topic))
            broker.delete(str(topic))
        settle(client)
        assert [watch.take_deleted(topic) for topic in topics] == [False, True, True]


def test_what_came_or_went_is_named_once(broker, client):
    names = {name: TopicName.parse(name) for name in ("wanted-1", "wanted-2", "wanted-3")}
    with TopicWatch(client, PATTERN) as watch:
        assert watch.take_changes() is None, "what there was before is not named"
        broker.create("wanted-1")
        broker.create("wanted-2", 2)
        broker.create("unwanted")
        settle(client)
        assert sorted(watch.take_changes()) == [names["wanted-1"], names["wanted-2"]]
        assert watch.take_changes() == []
        broker.delete("wanted-2-partition-1")
        broker.delete("wanted-1")
        broker.create("wanted-1")
        settle(client)
        assert sorted(watch.take_changes()) == [names["wanted-1"], names["wanted-2"]]


def test_very_many_changes_are_not_named(broker, client, monkeypatch):
    monkeypatch.setattr(watches, "_MAX_NAMED", 3)
    with TopicWatch(client, PATTERN) as watch:
        watch.take_changes()
        for count, is_named in ((3, True), (4, False), (1, True)):
            for number in range(count):
                broker.create(f"wanted-{count}-{number}")
            settle(client)
            assert (watch.take_changes() is not None) == is_named


def test_a_deletion_may_be_waited_for(broker, client):
    topic = TopicName.parse("wanted")
    with TopicWatch(client, PATTERN) as watch, ThreadPoolExecutor(1) as pool:
        broker.create("wanted")
        asked = pool.submit(watch.take_deleted, topic, 60.0)
        broker.delete("wanted")
        assert asked.result(60.0)


def test_topics_of_no_kind_that_can_be_read_do_not_count(broker, client):
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        (asked,) = broker.seen(Type.WATCH_TOPIC_LIST)
        name = "non-persistent://public/default/wanted"
        names = {"new_topics": [name], "topics_hash": ""}
        broker.send(Type.WATCH_TOPIC_UPDATE, watcher_id=asked.watcher_id, **names)
        settle(client)
        assert not changed(watch)


def test_names_that_cannot_be_read_do_not_count(broker, client):
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        (asked,) = broker.seen(Type.WATCH_TOPIC_LIST)
        names = {"new_topics": ["persistent://public/default/", "nonsense"], "topics_hash": ""}
        broker.send(Type.WATCH_TOPIC_UPDATE, watcher_id=asked.watcher_id, **names)
        settle(client)
        assert not changed(watch)


@pytest.mark.parametrize(
    ("text", "may_list", "asked"),
    [
        ("t", False, ["public/default/t(-p.*)?"]),
        ("t.*", True, ["public/default/t.*"]),
        (".*", True, [".*"]),
        ("a|b", False, []),
    ],
)
def test_the_broker_lists_no_more_than_it_must(broker, client, time_passes, text, may_list, asked):
    with TopicWatch(client, TopicPattern.parse(text), may_list=may_list) as watch:
        assert changed(watch)
        assert not changed(watch)
        time_passes(61)
        assert changed(watch)
    assert [each.topics_pattern for each in broker.seen(Type.WATCH_TOPIC_LIST)] == asked


def test_once_a_minute_topics_are_listed_in_any_case(broker, client, time_passes):
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        time_passes(59)
        broker.create("wanted")  # named, so nothing is listed for it
        settle(client)
        assert watch.take_changes() == [TopicName.parse("wanted")]
        time_passes(2)
        assert watch.take_changes() is None
        assert not changed(watch)


def test_a_lost_watch_is_opened_again(broker, client, time_passes):
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        broker.cut()
        wait_until(lambda: watch.take_changes() is None)  # something may have come meanwhile
        broker.wait_for_command(Type.WATCH_TOPIC_LIST, 2)
        wait_until(lambda: watch.take_changes() is None)  # or before the watch stood
        assert not changed(watch)
        broker.create("wanted")
        settle(client)
        assert changed(watch)


def test_attempts_to_watch_again_are_a_second_apart(broker, client, time_passes):
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        broker.script(Type.WATCH_TOPIC_LIST, [refuses(pb.UnknownError)])
        broker.cut()
        wait_until(lambda: changed(watch))
        broker.wait_for_command(Type.WATCH_TOPIC_LIST, 2)
        for _ in range(10):
            assert not changed(watch)
        assert len(broker.seen(Type.WATCH_TOPIC_LIST)) == 2
        wait_until(lambda: time_passes(1.5) or changed(watch))
        assert len(broker.seen(Type.WATCH_TOPIC_LIST)) == 3


def test_a_broker_without_watches(time_passes):
    with FakeBroker(has_watches=False) as broker, client_of(broker) as client:
        with TopicWatch(client, PATTERN) as watch:
            assert changed(watch)
            assert not changed(watch)
            broker.create("wanted")
            settle(client)
            assert not changed(watch)
            time_passes(61)
            assert changed(watch)
        assert broker.seen(Type.WATCH_TOPIC_LIST) == []


def test_who_may_not_watch_looks_once_a_minute(broker, client, time_passes):
    broker.script(Type.WATCH_TOPIC_LIST, [refuses(pb.AuthorizationError)])
    with TopicWatch(client, PATTERN) as watch:
        assert changed(watch)
        assert not changed(watch)
        time_passes(61)
        assert changed(watch)
    assert broker.seen(Type.WATCH_TOPIC_LIST_CLOSE) == []


def test_what_does_not_pass_is_raised(broker, client):
    broker.script(Type.WATCH_TOPIC_LIST, [refuses(pb.UnknownError, "broken")])
    with pytest.raises(BrokerError, match="broken"):
        TopicWatch(client, PATTERN)


def test_a_watch_without_an_answer_is_taken_back(broker, client):
    broker.script(Type.WATCH_TOPIC_LIST, [silence] * 9)
    hurry(client, 0.1)
    with pytest.raises(DeadlineError):
        TopicWatch(client, PATTERN)
    broker.wait_for_command(Type.WATCH_TOPIC_LIST_CLOSE)


def test_closing_never_raises(broker, client):
    watch = TopicWatch(client, PATTERN)
    broker.script(Type.WATCH_TOPIC_LIST_CLOSE, [refuses(pb.UnknownError)])
    watch.close()
    watch = TopicWatch(client, PATTERN)
    client.close()
    watch.close()
    assert len(broker.seen(Type.WATCH_TOPIC_LIST_CLOSE)) == 1
