"""Each example does what its first line says."""

import json
import re
import urllib.request
from dataclasses import replace

import pytest
from pulsar.schema import AvroSchema

from examples import (
    exactly_once_copy,
    foreach_batch,
    hourly_table,
    masked_cards,
    paid_orders,
    score,
    typed_orders,
    upsert,
    watched_query,
    windows,
    word_count,
    written_batches,
)
from integration.broker.waiting import wait_until
from integration.fixtures.spark import await_rows, begun, finish
from integration.helpers import cpp_values
from integration.helpers.peer import Peer, Record


def run(query):
    """Run a query over all there is."""
    finish(begun(query.trigger(availableNow=True)))


def compacted(pulsar_in_spark, admin, topic):
    """What is left of a topic for those who read it compacted."""
    admin.compact(topic)
    wait_until(lambda: admin.compaction_status(topic) == "SUCCESS")
    rows = pulsar_in_spark.read(topic, readCompacted="true").collect()
    return {row["__key"].decode(): None if row.value is None else row.value.decode() for row in rows}


@pytest.mark.long
def test_word_count(pulsar_in_spark, cluster, peer, admin, topic, checkpoint):
    counts = f"{topic}-counts"
    query = word_count.query(pulsar_in_spark.spark, cluster.service_url, topic, counts, str(checkpoint))
    peer.produce(topic, [Record(b"To be, or not"), Record(b"to be")])
    run(query)
    peer.produce(topic, [Record(b"that is the question: to ask")])
    run(query)
    assert compacted(pulsar_in_spark, admin, counts) == {
        "to": "3",
        "be": "2",
        **dict.fromkeys(["or", "not", "that", "is", "the", "question", "ask"], "1"),
    }


def change(op, key, **row):
    return Record(json.dumps({"op": op, "id": key, "row": row or None}).encode(), key=key)


@pytest.mark.long
def test_upsert(pulsar_in_spark, cluster, peer, admin, topic, checkpoint):
    table = f"{topic}-table"
    query = upsert.query(pulsar_in_spark.spark, cluster.service_url, topic, table, str(checkpoint))
    changes = [
        change("create", "1", name="Ann"),
        change("create", "2", name="Bob"),
        change("update", "1", name="Anna"),
        change("create", "3", name="Cid"),
        change("delete", "2"),
    ]
    peer.produce(topic, changes)
    run(query)
    assert [(record.key, record.value is None) for record in peer.read_all(table)][-1] == ("2", True)
    assert compacted(pulsar_in_spark, admin, table) == {"1": '{"name":"Anna"}', "3": '{"name":"Cid"}'}


def forget_last_commit(checkpoint):
    """Leave the checkpoint as a driver does that dies when a micro-batch is written and not yet noted."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink()


def check_copy(spark, service_url, source, copy, home, how):
    """Copy in one run, let its end be forgotten, and run again."""
    query = exactly_once_copy.query(spark, service_url, source, copy, str(home), how)
    records = [
        Record(b"%d" % number, key=f"k{number % 7}", properties=(("n", f"{number}"),), event_time=number + 1)
        for number in range(100)
    ]
    with Peer(service_url) as peer:
        peer.produce(source, records, batch_size=30)
        run(query)
        forget_last_commit(home)
        run(query)
        assert peer.read_all(copy) == records


def test_effectively_once_copy(spark, cluster, topic, plain_once_topic, checkpoint):
    check_copy(spark, cluster.service_url, topic, plain_once_topic, checkpoint, "effectively-once")


def sale(shop, amount, second):
    value = json.dumps({"shop": shop, "amount": amount}, separators=(",", ":")).encode()
    return Record(value, key=shop, event_time=1_800_000_000_000 + second * 1000)


@pytest.mark.long
def test_windows(pulsar_in_spark, cluster, peer, topic, checkpoint):
    sums = f"{topic}-sums"
    query = windows.query(pulsar_in_spark.spark, cluster.service_url, topic, sums, str(checkpoint))
    peer.produce(topic, [sale("Cork", 1, 2), sale("Bergen", 2, 3), sale("Cork", 4, 9), sale("Cork", 8, 26)])
    run(query)
    assert sorted(peer.read_all(sums), key=repr) == [sale("Bergen", 2.0, 10), sale("Cork", 5.0, 10)]
    late = sale("Cork", 16, 4)
    peer.produce(topic, [late, sale("Cork", 32, 29), sale("Cork", 64, 60)])
    run(query)
    assert peer.read_all(sums)[-1] == sale("Cork", 40.0, 30)


def test_foreach_batch(pulsar_in_spark, cluster, peer, topic, checkpoint):
    orders, rejected = f"{topic}-orders", f"{topic}-rejected"
    query = foreach_batch.query(
        pulsar_in_spark.spark, cluster.service_url, topic, orders, rejected, str(checkpoint)
    )
    good = [Record(b'{"id": %d, "amount": 1.5}' % number, key=f"{number}") for number in range(10)]
    bad = [Record(b'{"id": "none"}'), Record(b"what?", key="x"), Record(None, key="y")]
    peer.produce(topic, good[:5] + bad + good[5:])
    run(query)
    assert peer.read_all(orders) == good
    assert peer.read_all(rejected) == [replace(record, properties=(("origin", topic),)) for record in bad]


def orders_schema(*more):
    fields: list[dict[str, object]] = [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"}]
    fields += [{"name": name, "type": ["null", "string"], "default": None} for name in more]
    return AvroSchema(None, {"type": "record", "name": "Order", "fields": fields})


def test_typed_orders(pulsar_in_spark, cluster, peer, topic, checkpoint):
    large = f"{topic}-large"
    first, second, third = orders_schema(), orders_schema("note"), orders_schema("note", "currency")
    runs = 0

    def start():
        nonlocal runs
        runs += 1
        query = typed_orders.query(pulsar_in_spark.spark, cluster.service_url, topic, large, str(checkpoint))
        if runs > 1:
            return query.trigger(availableNow=True).start()
        started = query.start()
        await_rows(started, lambda: sum(progress.numInputRows for progress in started.recentProgress) == 4)
        cpp_values.produce(peer, topic, third, [{"id": 5, "amount": 600, "note": None, "currency": "EUR"}])
        cpp_values.produce(peer, topic, first, [{"id": 6, "amount": 700}])
        return started

    cpp_values.produce(peer, topic, first, [{"id": 1, "amount": 100}, {"id": 2, "amount": 99.5}])
    cpp_values.produce(peer, topic, second, [{"id": 3, "amount": 300, "note": "gift"}])
    cpp_values.produce(peer, topic, first, [{"id": 4, "amount": 400}])
    typed_orders.run(start)
    assert runs == 2
    rows = pulsar_in_spark.read(large, valueFormat="columns", metadataColumns="").collect()
    assert [row.asDict() for row in rows] == [
        {"id": 1, "amount": 100.0, "note": None, "currency": None},
        {"id": 3, "amount": 300.0, "note": "gift", "currency": None},
        {"id": 4, "amount": 400.0, "note": None, "currency": None},
        {"id": 5, "amount": 600.0, "note": None, "currency": "EUR"},
        {"id": 6, "amount": 700.0, "note": None, "currency": None},
    ]


def test_masked_cards(pulsar_in_spark, cluster, peer, topic):
    masked = f"{topic}-masked"
    peer.produce(topic, [Record(b'{"card": 4000123412341234, "id": 7}', key="ann"), Record(b"no card")])
    spark = pulsar_in_spark.spark
    masked_cards.copy(spark, cluster.service_url, topic, masked, "examples.masked_cards").save()
    assert peer.read_all(masked) == [Record(b'{"card": ****, "id": 7}', key="ann"), Record(b"no card")]


def test_written_batches(pulsar_in_spark, cluster, peer, topic, checkpoint):
    copy = f"{topic}-copy"
    peer.produce(topic, [Record(b"%d" % number) for number in range(5)])
    spark, function = pulsar_in_spark.spark, "examples.written_batches.report"
    run(written_batches.query(spark, cluster.service_url, topic, copy, str(checkpoint), function))
    lines = [line for line in written_batches.NOTES.read_text().splitlines() if copy in line]
    assert len(lines) == 1
    assert re.fullmatch(rf"batch 0, {copy}: 5 messages, \d+ bytes from [\d:]+ to [\d:]+", lines[0])


def test_watched_query(pulsar_in_spark, cluster, peer, topic):
    peer.produce(topic, [Record(b"tea")])
    query, listener, page = watched_query.watch(pulsar_in_spark.spark, cluster.service_url, topic)
    try:
        await_rows(query, lambda: f'topic="{topic}"' in listener.prometheus_text())
        with urllib.request.urlopen(f"{page}metrics") as found:
            assert 'query="watched"' in found.read().decode()
    finally:
        query.stop()
        pulsar_in_spark.spark.streams.removeListener(listener)
        listener.close()


def test_paid_orders(pulsar_in_spark, cluster, topic, checkpoint):
    orders, payments, paid = (f"{topic}-{name}" for name in ("orders", "payments", "paid"))
    for name, columns, rows in (
        (orders, "id long, item string", [(1, "tea", 0), (2, "milk", 0), (3, "rice", 0)]),
        (payments, "order_id long, amount double", [(2, 1.5, 3599), (3, 2.5, 3601)]),
    ):
        timed = [(*row, 1_800_000_000_000 + second * 1000) for *row, second in rows]
        frame = pulsar_in_spark.rows(timed, f"{columns}, __eventTime long")
        pulsar_in_spark.write(frame, name, valueFormat="columns")
    spark = pulsar_in_spark.spark
    run(paid_orders.query(spark, cluster.service_url, orders, payments, paid, str(checkpoint)))
    found = pulsar_in_spark.read(paid, valueFormat="columns", metadataColumns="").collect()
    assert [row.asDict() for row in found] == [{"id": 2, "item": "milk", "amount": 1.5}]


def test_score(pulsar_in_spark, cluster, peer, topic):
    rows = [("ann", 10.0), ("bob", 4.0), ("ann", 20.0)]
    payments = [
        Record(json.dumps({"customer": name, "amount": amount}).encode(), key=name) for name, amount in rows
    ]
    peer.produce(topic, payments)
    scores, means = f"{topic}-scores", f"{topic}-means"
    score.main(pulsar_in_spark.spark, cluster.service_url, topic, scores, means)
    assert peer.read_all(scores) == [
        Record(b"5.00", key="ann"),
        Record(b"4.00", key="bob"),
        Record(b"10.00", key="ann"),
    ]
    assert set(peer.read_all(means)) == {Record(b"15.00", key="ann"), Record(b"4.00", key="bob")}


def test_hourly_table(pulsar_in_spark, cluster, peer, topic, tmp_path):
    table = f"{tmp_path}/table"
    for schema, order in (
        (orders_schema(), {"id": 1, "amount": 2.5}),
        (orders_schema("note"), {"id": 2, "amount": 3.5, "note": "gift"}),
    ):
        cpp_values.produce(peer, topic, schema, [order])
        finish(begun(hourly_table.query(pulsar_in_spark.spark, cluster.service_url, topic, "0", table)))
    rows = pulsar_in_spark.spark.read.parquet(table).orderBy("id")
    assert rows.columns == ["id", "amount", "__publishTime", "hour"]
    assert [tuple(row)[:2] for row in rows.collect()] == [(1, 2.5), (2, 3.5)]
