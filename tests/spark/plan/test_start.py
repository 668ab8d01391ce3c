"""Where a query without a checkpoint begins, and where its subscription stands then."""

import json

import pytest

from pulsar_spark.client import Calls, Range
from pulsar_spark.errors import BusyError, OptionError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan.partition import Partition
from pulsar_spark.spark.plan.scalable import ScalableTopics
from pulsar_spark.spark.plan.start import after_start_times, start_query
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import iso_time, options_of, two_ledgers

T = TopicName.parse("t")


@pytest.fixture
def cluster():
    return two_ledgers()


def started(cluster, options, partitions):
    return start_query(cluster, Calls(), options, partitions, ScalableTopics(cluster, options))


def start(cluster, **options):
    return started(cluster, options_of(topic="t", **options), [T])


@pytest.mark.parametrize(
    ("options", "position", "mark"),
    [
        ({"startingOffsets": "earliest"}, "10:-1", "10:-1"),
        ({"startingOffsets": "latest"}, "20:2", "20:2"),
        ({}, "20:2", "20:2"),
        ({"startingOffsets": '{"t": {"-1": "20:1"}}'}, "20:0", "20:0"),
        ({"startingOffsets": '{"t": {"-1": "20:1:2"}}'}, "20:1:1", "20:0"),
        ({"startingOffsets": '{"t": {"-1": "30:1"}}'}, "30:0", "20:2"),
        ({"startingOffsets": '{"t": {"-1": "latest"}}'}, "20:2", "20:2"),
        ({"startingTime": iso_time(300)}, "20:-1", "10:-1"),
        ({"startingTime": iso_time(301)}, "20:0", "20:0"),
        ({"startingTime": iso_time(9999)}, "20:2", "20:2"),
    ],
)
def test_the_subscription_holds_what_comes_after_the_start(cluster, options, position, mark):
    found = start(cluster, **options)
    assert found.positions == {T: MessageId.parse(position)}
    assert cluster.topics[T].cursors == {found.subscription.name: MessageId.parse(mark)}
    assert found.answers[T].last == MessageId(20, 2)


@pytest.mark.parametrize(("time", "is_found"), [(300, True), (500, True), (501, False)])
def test_a_time_that_was_found_is_not_searched_for_again(cluster, time, is_found):
    found = start(cluster, startingTime=iso_time(time))
    assert found.subscription.partitions[T].is_start_time_found == is_found


@pytest.mark.parametrize(
    ("stands", "options", "position", "mark"),
    [
        # one that the user named goes on where it stands, or is put where the query begins
        ("10:1", {}, "10:1", "10:1"),
        ("10:1", {"startingOffsets": "subscription"}, "10:1", "10:1"),
        ("10:1", {"startingOffsets": "earliest"}, "10:-1", "10:-1"),
        ("20:2", {"startingOffsets": '{"t": {"-1": "20:1"}}'}, "20:0", "20:-1"),
        # it is not moved forward before the start is in Spark's checkpoint
        ("10:1", {"startingOffsets": "latest"}, "20:2", "10:1"),
        ("10:1", {"startingTime": iso_time(400)}, "20:0", "10:1"),
    ],
)
def test_a_subscription_that_the_user_named(cluster, stands, options, position, mark):
    cluster.topics[T].cursors["mine"] = MessageId.parse(stands)
    found = start(cluster, predefinedSubscription="mine", **options)
    assert found.subscription.name == "mine"
    assert found.positions == {T: MessageId.parse(position)}
    assert cluster.topics[T].cursors["mine"] == MessageId.parse(mark)


def test_a_subscription_that_the_user_named_is_made_at_the_end_where_it_does_not_exist(cluster):
    other = TopicName.parse("u")
    cluster.create("u")[0].produce(2)
    cluster.topics[T].cursors["mine"] = MessageId(10, 1)
    options = options_of(topics="t,u", predefinedSubscription="mine")
    found = started(cluster, options, [T, other])
    assert found.positions == {T: MessageId(10, 1), other: MessageId(10, 1)}
    assert cluster.topics[other].cursors == {"mine": MessageId(10, 1)}


@pytest.mark.parametrize(
    ("stands", "given", "warned"),
    [
        ("10:1", "latest", "a backlog of 4 entries"),
        ("10:1", "10:3", "a backlog of 4 entries"),
        ("20:1", "latest", "a backlog of 1 entries"),
        ("20:2", "latest", None),
        ("20:1", "10:2", None),
        (None, "20:1", None),
    ],
)
def test_a_start_that_leaves_out_the_backlog_of_a_named_subscription_is_warned_of(
    cluster, caplog, stands, given, warned
):
    if stands is not None:
        cluster.topics[T].cursors["mine"] = MessageId.parse(stands)
    given = f'{{"t": {{"-1": "{given}"}}}}' if ":" in given else given
    start(cluster, predefinedSubscription="mine", startingOffsets=given)
    if warned is None:
        assert "backlog" not in caplog.text
    else:
        assert warned in caplog.text
        assert "persistent://public/default/t" in caplog.text


def test_a_subscription_to_go_on_with_must_exist(cluster):
    with pytest.raises(OptionError, match="there is no subscription 'mine' to start from"):
        start(cluster, predefinedSubscription="mine", startingOffsets="subscription")
    assert cluster.topics[T].cursors == {}


def test_an_empty_topic_is_taken_from_its_beginning(cluster):
    (topic,) = cluster.create("t")
    found = start(cluster, startingTime=iso_time(5))
    assert found.positions == {T: topic.begin}
    assert cluster.count("ack") == 0


@pytest.mark.parametrize("name", [None, "mine"])
def test_what_compaction_has_kept_is_read_from_its_beginning(name):
    """Also if the subscription that the user named stands at the end of the log."""
    cluster = SimulatedCluster(read_compacted=True)
    (topic,) = cluster.create("t")
    topic.compact_and_trim(topic.produce(3)[1])
    end = topic.produce(2)[-1]
    if name is not None:
        topic.cursors[name] = end
    options = {} if name is None else {"predefinedSubscription": name}
    found = start(cluster, readCompacted="true", startingOffsets="earliest", **options)
    assert found.positions == {T: MessageId.EARLIEST}
    assert list(topic.cursors.values()) == [topic.begin]
    assert start(cluster, readCompacted="true").positions == {T: end}


@pytest.mark.parametrize("name", [None, "mine"])
def test_a_start_that_fails_removes_what_it_made(cluster, monkeypatch, name):
    def fail(*_):
        raise BusyError("no")

    monkeypatch.setattr(cluster, "bounds", fail)
    options = {} if name is None else {"predefinedSubscription": name}
    with pytest.raises(BusyError):
        start(cluster, startingOffsets='{"t": {"-1": "20:1"}}', **options)
    assert list(cluster.topics[T].cursors) == ([] if name is None else ["mine"])
    topic = ScalableTopic(cluster).name
    given = options_of(topic=str(topic), admin__url="http://localhost:1", startingTime=iso_time(5), **options)
    with pytest.raises(BusyError):
        started(cluster, given, cluster.partitions(topic))
    assert cluster.registered == {topic: set() if name is None else {"mine"}}


def test_a_topic_that_is_deleted_while_the_query_starts_is_an_error_if_it_is_named(cluster):
    gone = TopicName.parse("gone")
    with pytest.raises(TopicNotFoundError, match=r"deleted while the query started.*gone"):
        started(cluster, options_of(topics="t,gone"), [T, gone])
    assert cluster.topics[T].cursors == {}
    for options in ({"topicsPattern": ".*"}, {"topics": "t,gone", "waitingForNonExistedTopic": "true"}):
        found = started(cluster, options_of(Mode.STREAM, **options), [T, gone])
        assert list(found.positions) == [T]


def test_a_fresh_subscription_has_the_user_s_properties(cluster, monkeypatch):
    asked, subscribe = [], cluster.subscribe
    monkeypatch.setattr(
        cluster, "subscribe", lambda topic, options: asked.append(options) or subscribe(topic, options)
    )
    start(cluster, pulsar__consumer__subscriptionProperties='{"team": "sales"}')
    assert [each.properties for each in asked] == [(("team", "sales"),)]


def test_a_fresh_subscription_has_a_name_of_its_own(cluster):
    names = {start(cluster, subscriptionPrefix="team").subscription.name for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("team-") for name in names)


@pytest.mark.parametrize(
    ("given", "is_late"),
    [("20:2", False), ("20:3", False), ("20:4", True), ("9999:2", True), ("10:0", False)],
)
def test_a_start_after_the_end_is_warned_of(cluster, caplog, given, is_late):
    start(cluster, startingOffsets=f'{{"t": {{"-1": "{given}"}}}}')
    assert ("is after the end of 1 topic partitions" in caplog.text) == is_late


def test_a_query_begins_where_another_ended(cluster):
    """What the old one did not know of came later."""
    cluster.create("u")[0].produce(2)
    ended = '{"subscription": "old", "topics": {"persistent://public/default/t": {"-1": "20:0"}}}'
    options = options_of(topics="t,u", startingOffsets=ended)
    found = started(cluster, options, [T, TopicName.parse("u")])
    assert list(found.positions.values()) == [MessageId(20, 0), MessageId(10, -1)]
    assert found.subscription.name != "old"
    assert cluster.topics[T].cursors == {found.subscription.name: MessageId(20, 0)}


def test_each_partition_of_a_micro_batch_begins_where_it_reaches_the_start_time():
    times = {
        "all before": (100, 200, 999),
        "reached": (100, 1000, 10),
        "from the first on": (2000, 10, 10),
        "found by an earlier micro-batch": (100, 200, 300),
    }
    names = [T.of_partition(number) for number in range(4)]
    for given in (
        iso_time(1000),
        json.dumps({"t": iso_time(1000)}),
        json.dumps(dict.fromkeys(map(str, names), iso_time(1000))),
    ):
        cluster = SimulatedCluster()
        states, ranges = {}, []
        for name, topic, published in zip(names, cluster.create("t", 4), times.values(), strict=True):
            ids = [entry for time in published for entry in topic.produce(time=time)]
            begin = ids[0].previous
            states[name] = Partition(name, None, begin, begin, ids[-1])
            ranges.append(Range(name, begin, ids[-1]))
        first = ranges[2].start.next_entry
        ranges[2] = ranges[2]._replace(start=MessageId(first.ledger, first.entry, 1))
        states[names[3]].is_start_time_found = True
        plain = options_of(topic="t", startingOffsets="earliest")
        assert after_start_times(cluster, plain, states, ranges) == ranges
        found = after_start_times(cluster, options_of(topic="t", startingTime=given), states, ranges)
        reached = ranges[1]._replace(start=ranges[1].start.next_entry)
        assert found == [reached, *ranges[2:]], given
        assert [each.is_start_time_found for each in states.values()] == [False, True, True, True]


def test_only_the_first_search_of_a_run_looks_back():
    """Each micro-batch that waits for the time would read the margin before it again."""
    cluster = SimulatedCluster()
    (topic,) = cluster.create("t")
    begin, end = topic.produce(2, time=900)
    states, options = (
        {T: Partition(T, None, begin, begin, end)},
        options_of(topic="t", startingTime=iso_time(1000)),
    )
    for _ in range(3):
        assert after_start_times(cluster, options, states, [Range(T, begin, end)]) == []
        assert cluster.count("probe", T) == 1
