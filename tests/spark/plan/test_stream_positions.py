"""QueryPlanner on a cluster in memory: subscriptions and topics that somebody moves, removes or sets back."""

import pytest

from pulsar_spark.errors import DataLossError, DeadlineError, NotReadyError
from pulsar_spark.ids import MessageId
from tests.spark.plan import simulated_readers
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import P0, SimulatedSpark, T, at, mark, reading, rows_of


def move(topic, name, remove):
    """Move a subscription to the topic's end, or remove it."""
    if remove:
        del topic.cursors[name]
    else:
        topic.cursors[name] = topic.last


# ---- subscriptions that somebody moves or removes


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("remove", [True, False])
def test_a_subscription_that_was_moved_holds_again(cluster, topic, stopped, remove, caplog):
    spark = reading(cluster, topic)
    processed, name = topic.last, spark.subscription
    if stopped:
        spark.planner.close()
    ids = topic.produce(3)
    move(topic, name, remove)
    if stopped:
        spark.start()
    assert spark.trigger() == rows_of(T, ids)
    assert "nothing is lost" in caplog.text
    assert cluster.count("seek", T, processed) == 1
    assert mark(spark) <= processed
    assert spark.trigger() is None
    assert mark(spark) == ids[-1]


def test_a_restart_is_judged_by_the_start_of_a_batch_that_did_not_finish(cluster, topic, caplog):
    spark = reading(cluster, topic)
    topic.produce(3)
    topic.roll_over()
    ids = topic.produce(2)
    spark.trigger(fails=True)
    topic.trim()
    spark.restart()
    assert spark.trigger() == rows_of(T, ids)
    assert "(10:1, 20:-1] may be lost" in caplog.text


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("remove", [True, False])
def test_a_subscription_that_was_moved_over_what_is_gone_is_loss(cluster, topic, stopped, remove, caplog):
    spark = reading(cluster, topic)
    name = spark.subscription
    if stopped:
        spark.planner.close()
    topic.produce(3)
    topic.roll_over()
    ids = topic.produce(2)
    move(topic, name, remove)
    topic.trim()
    if stopped:
        spark.start()
    for _ in range(2):  # it is found again by the next start
        with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
            spark.trigger()
        spark.restart()
        assert (name in topic.cursors) is not (stopped and remove)
    spark.restart(failOnDataLoss="false")
    assert spark.trigger() == rows_of(T, ids)
    assert "(10:1, 20:-1]" in caplog.text


def test_what_the_broker_says_counts_also_where_a_tail_fails(cluster, topic, monkeypatch):
    """A tail of a topic that was made again may wait for its broker until it gives up."""
    spark = reading(cluster, topic)
    for _ in range(3):
        cluster.clock += 0.3
        spark.trigger()
    assert cluster.count("tail", T)
    topic.produce(3)
    topic.roll_over()
    topic.produce(2)
    del topic.cursors[spark.subscription]
    topic.trim()

    def follow(tail, end):
        raise DeadlineError("no message came")

    monkeypatch.setattr(simulated_readers.Tail, "follow", follow)
    with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
        spark.trigger()


def test_a_consumed_ledger_that_goes_away_is_no_loss(cluster, topic, caplog):
    spark = reading(cluster, topic)
    topic.roll_over(trims=True)
    assert spark.trigger() is None
    ids = topic.produce(2)
    assert spark.drain() == rows_of(T, ids)
    topic.roll_over(trims=True)
    spark.restart()
    assert spark.trigger() is None
    assert caplog.text == ""


@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize("state", ["idle", "in a micro-batch"])
def test_what_somebody_removes_up_to_a_ledger_while_the_query_runs_is_loss(cluster, topic, state, later):
    """The broker itself moves the subscription to the same place when it removes a consumed ledger."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    if state == "idle":
        spark.drain()
        assert mark(spark) == topic.last
    else:
        spark.trigger()
        assert mark(spark) < topic.last
    topic.produce(3)
    topic.roll_over(trims=True)
    topic.produce(later)
    topic.cursors[spark.subscription] = topic.begin
    with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
        spark.trigger()
    assert spark.subscription in topic.cursors, "what is left must be held"


@pytest.mark.parametrize("consumed", [1, 2, 3, 4])
def test_what_was_seen_and_waits_for_its_turn_is_loss_where_a_ledger_is_removed(cluster, topic, consumed):
    """However much has come, and was read, since the first of it was seen."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="3")
    for _ in range(consumed):
        topic.produce(5)
        spark.trigger()
    processed = spark.planner.latest(spark._logged(-1)) and mark(spark)
    topic.roll_over(trims=True)
    topic.produce(1)
    with pytest.raises(DataLossError, match=rf"\({processed}, 20:-1\]"):
        spark.trigger()


def test_what_is_removed_before_an_acknowledgement_could_be_sent_is_loss(cluster, topic, monkeypatch):
    """The answer that shows it is judged when the acknowledgement has been sent, and did nothing."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    topic.produce(2)
    spark.trigger()
    monkeypatch.setattr(cluster, "open_tail", fail_to_open)
    acknowledge = spark.planner._subscription.partitions[T].consumer.begin_ack_cumulative
    lost = [T]

    def acknowledge_when_lost(entry):
        if not lost:
            return acknowledge(entry)
        lost.pop()
        topic.produce(3)
        topic.roll_over(trims=True)
        topic.produce(1)
        return None

    monkeypatch.setattr(
        spark.planner._subscription.partitions[T].consumer, "begin_ack_cumulative", acknowledge_when_lost
    )
    assert spark.trigger() is None
    with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
        spark.trigger()


def fail_to_open(*_):
    raise NotReadyError("no tail")


@pytest.mark.parametrize("later", [0, 2])
def test_what_may_be_removed_up_to_a_ledger_while_the_query_is_stopped(cluster, topic, later, caplog):
    """Once more was written, nobody knows where the ledger ended."""
    spark = reading(cluster, topic)
    spark.planner.close()
    topic.produce(3)
    topic.roll_over(trims=True)
    ids = topic.produce(later)
    topic.cursors[spark.subscription] = topic.begin
    if later:
        spark.start()
        assert spark.drain() == rows_of(T, ids)
        assert caplog.text.count("messages in (10:1, 20:-1] may be lost") == 1
        return
    for _ in range(2):
        spark.start()
        with pytest.raises(DataLossError, match=r"\(10:1, 20:-1\]"):
            spark.trigger()
        spark.planner.close()


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_consumed_ledger_that_goes_away_while_the_query_is_stopped(cluster, topic, is_stored, caplog):
    """With retention it is still there, and shows that nothing is lost."""
    spark = reading(cluster, topic)
    spark.planner.close()
    topic.roll_over()
    if not is_stored:
        topic.trim()
    topic.cursors[spark.subscription] = at("20:-1")
    ids = topic.produce(2)
    topic.reload()
    spark.start()
    assert spark.drain() == rows_of(T, ids)
    assert ("(10:1, 20:-1] may be lost" in caplog.text) is not is_stored
    assert "PULSAR_DATA_LOSS" not in caplog.text


def test_restarts_of_a_healthy_query_warn_once_and_not_of_partitions_that_were_always_empty(caplog):
    """Brokers that load partitions remove empty ledgers, and then consumed ones."""
    cluster = SimulatedCluster()
    topics = cluster.create("t", 8)
    spark = SimulatedSpark(cluster, startingOffsets="earliest")
    spark.drain()
    for _ in range(3):
        _load_again(spark, topics)
        spark.drain()
    assert not caplog.records
    assert "possibleLoss" not in str(spark.planner.report())
    for topic in topics[:4]:
        topic.produce(2)
    spark.drain()
    for run in range(1, 4):
        _load_again(spark, topics)
        spark.drain()
        assert caplog.text.count("may be lost, and of 3 more partitions") == len(caplog.records) == run
    shown = spark.planner.report()["topics"][str(T)]
    ledgers = [topic.begin for topic in topics]
    assert [shown[str(number)].get("possibleLoss") for number in range(8)] == [
        *(f"(40:1, {ledgers[number]}]" for number in range(4)),
        *[None] * 4,
    ]
    assert spark.planner.report()["dataLosses"] == 0


def _load_again(spark, topics):
    spark.planner.close()
    for topic in topics:
        topic.roll_over(trims=True)
        topic.reload()
    spark.start()


@pytest.fixture
def set_back(cluster):
    """A query on a topic that ends in an older ledger than what it has processed; it is stopped or runs."""

    def make(*, stopped, fail=True, restored=False):
        (old,) = cluster.create("t", ledger=500)
        spark = reading(cluster, old, 5, failOnDataLoss=str(fail).lower())
        if stopped:
            spark.planner.close()
        cluster.delete("t")
        (new,) = cluster.create("t", ledger=30)
        new.produce(2)
        if restored:
            new.cursors[spark.subscription] = new.begin
        cluster.clock += 5.0
        if stopped:
            spark.start()
        return spark, new

    return make


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("restored", [True, False])
def test_a_topic_that_ends_before_what_was_processed_is_an_error(set_back, stopped, restored):
    spark, new = set_back(stopped=stopped, restored=restored)
    before = dict(new.cursors)
    for _ in range(2):
        with pytest.raises(
            DataLossError, match="ends at 30:1, before the position that this query has processed"
        ):
            spark.trigger()
        if stopped:
            assert new.cursors == before, "the broker is left as it was"
        spark.play("stop start")
    assert len(spark.rows) == 5


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("restored", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_such_a_topic_is_read_from_its_end_where_loss_is_no_error(set_back, caplog, stopped, restored, fails):
    spark, new = set_back(stopped=stopped, fail=False, restored=restored)
    spark.trigger(fails=fails)
    assert caplog.text.count("before the position that this query has processed") == 1
    if fails:
        new.produce(1)
        ids = new.ids[2:]
        spark.play("restart trigger")
        assert spark.ranges == [], "nothing is read twice"
    else:
        ids = new.produce(1)
    spark.drain()
    assert spark.rows[5:] == rows_of(T, ids)
    assert mark(spark) == ids[-1]
    spark.restart()
    more = new.produce(1)
    spark.drain()
    assert spark.rows[5:] == rows_of(T, ids + more)
    assert caplog.text.count("before the position that this query has processed") == 1


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("rolls_over", [True, False])
def test_a_query_may_begin_at_a_marker_in_a_later_ledger_than_the_last_message(
    cluster, topic, caplog, own, rolls_over
):
    topic.produce(2)
    topic.roll_over()
    marker = topic.mark_transaction()
    topic.cursors["named"] = marker
    spark = SimulatedSpark(cluster, **({} if own else {"predefinedSubscription": "named"}))
    spark.drain()
    assert mark(spark) == marker
    if rolls_over:
        topic.roll_over()
        topic.cursors[spark.subscription] = MessageId(topic.ledgers[-1], -1)
        spark.drain()
    spark.play("restart drain")
    ids = topic.produce(1)
    assert spark.drain() == rows_of(T, ids)
    assert caplog.text == ""


def test_an_unfinished_batch_of_a_topic_that_is_set_back_reads_nothing(cluster, topic, caplog):
    topic.roll_over(500)
    topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", failOnDataLoss="false")
    spark.drain()
    topic.produce(1)
    spark.play("fail stop")
    (new,) = cluster.create("t", ledger=30)
    new.produce(2)
    spark.start()
    assert spark.trigger() == []
    ids = new.produce(1)
    assert spark.drain() == rows_of(T, ids)


def test_a_start_after_all_there_is_is_waited_for(cluster, topic):
    topic.produce(2)
    spark = SimulatedSpark(cluster, startingOffsets='{"t": {"-1": "30:0"}}')
    spark.trigger()
    topic.produce(1)
    assert spark.drain() == []
    spark.restart()
    topic.roll_over(30)
    ids = topic.produce(2)
    assert spark.drain() == rows_of(T, ids)


def test_a_topic_that_is_made_again_under_the_running_query_is_read_from_its_beginning(cluster):
    (old,) = cluster.create("t", 1, ledger=500)
    spark = reading(cluster, old, 5)
    cluster.delete("t")
    cluster.clock += 5.0
    assert spark.trigger() == []
    (new,) = cluster.create("t", 1, ledger=900)
    ids = new.produce(2)
    assert spark.drain() == rows_of(P0, ids)


@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize("seen", [0, 2])
def test_a_topic_that_is_deleted_and_made_again_at_once(cluster, caplog, is_reported, seen):
    (old,) = cluster.create("t", 1, ledger=500)
    spark = SimulatedSpark(cluster, startingOffsets="earliest", maxMessagesPerTrigger="5")
    old.produce(5 + seen)
    spark.trigger()
    cluster.delete("t")
    if not is_reported:
        cluster.deleted.clear()
    (new,) = cluster.create("t", 1, ledger=900)
    ids = new.produce(2)
    if seen or not is_reported:
        with pytest.raises(DataLossError, match="the topic was deleted and created again"):
            spark.trigger()
    else:
        assert spark.trigger() == rows_of(P0, ids)
        assert "deleted and created again" in caplog.text
        more = new.produce(2)
        assert spark.drain() == rows_of(P0, more)
        assert mark(spark, P0) == more[-1]


def test_an_old_report_of_a_deletion_does_not_hide_loss(cluster, topic):
    spark = reading(cluster, topic)
    cluster.deleted.add(T)
    topic.produce(1)
    spark.drain()
    topic.produce(1)
    topic.roll_over()
    topic.produce(1)
    del topic.cursors[spark.subscription]
    topic.trim()
    with pytest.raises(DataLossError, match="its subscription was removed"):
        spark.trigger()
