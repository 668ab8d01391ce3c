"""Each example does what its first line says, and the quickstart prints what it shows."""

import json
import re
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
from pulsar.schema import AvroSchema

from examples import (
    exactly_once_copy,
    foreach_batch,
    masked_cards,
    typed_orders,
    upsert,
    watched_query,
    windows,
    word_count,
    written_batches,
)
from integration.broker.waiting import wait_until
from integration.docs import ROOT, blocks
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


def test_quickstart(pulsar_in_spark, cluster, topic, tmp_path, capsys):
    page = ROOT / "docs" / "quickstart.md"
    places = {
        "pulsar://localhost:6650": cluster.service_url,
        '"orders"': f'"{topic}"',
        '"order-counts"': f'"{topic}-counts"',
        "checkpoints/": f"{tmp_path}/",
    }
    names: dict[str, object] = {}
    for block in blocks(page, "python", "text"):
        if block.language == "text":
            assert capsys.readouterr().out.strip() == block.text, block.place
            continue
        run_block(block, places, names)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_program_of_a_front_page(pulsar_in_spark, cluster, topic, capsys, page):
    places = {"pulsar://localhost:6650": cluster.service_url, '"orders"': f'"{topic}"'}
    (program,) = blocks(ROOT / page, "python")
    run_block(program, places, {})
    assert capsys.readouterr().out.strip() == blocks(ROOT / page, "text")[-1].text


def run_block(block, places, names):
    """Run the code of a block with other texts in the place of some."""
    code = block.text
    for text, place in places.items():
        code = code.replace(text, place)
    exec(compile(code, block.place, "exec"), names)


def test_the_join_of_two_topics(pulsar_in_spark, cluster, peer, topic, tmp_path):
    """As docs/schemas.md has it, with what it writes."""
    tables: dict[str, tuple[dict[str, str], list[dict[str, object]]]] = {
        "orders": ({"id": "long", "item": "string"}, [{"id": 1, "item": "tea"}, {"id": 2, "item": "milk"}]),
        "payments": ({"order_id": "long", "amount": "double"}, [{"order_id": 2, "amount": 1.5}]),
    }
    for name, (types, rows) in tables.items():
        fields = [{"name": field, "type": type_} for field, type_ in types.items()]
        schema = AvroSchema(None, {"type": "record", "name": "Row", "fields": fields})
        cpp_values.produce(peer, f"{topic}-{name}", schema, rows, event_time=1_800_000_000_000)
    places = {
        "pulsar://localhost:6650": cluster.service_url,
        **{f'"{name}"': f'"{topic}-{name}"' for name in (*tables, "paid-orders")},
        "/tmp/": f"{tmp_path}/",
        ".start()": ".trigger(availableNow=True).start().awaitTermination()",
    }
    names: dict[str, object] = {"spark": pulsar_in_spark.spark}
    for block in blocks(ROOT / "docs" / "schemas.md", "python"):
        if "def table" in block.text or "paid.writeStream" in block.text:
            run_block(block, places, names)
    paid = pulsar_in_spark.read(f"{topic}-paid-orders", valueFormat="columns", metadataColumns="").collect()
    assert [row.asDict() for row in paid] == [{"id": 2, "item": "milk", "amount": 1.5}]


@pytest.mark.long
def test_the_recipes(pulsar_in_spark, cluster, peer, topic, tmp_path):
    """Those that docs/recipes.md calls tried, in the order of the page."""
    sent = [("ann", "eu"), ("bob", "us"), ("ann", "eu")]
    orders = [
        Record(json.dumps({"id": n, "region": region}).encode(), key=key)
        for n, (key, region) in enumerate(sent)
    ]
    no_order = Record(b"what?", key="zoe")
    peer.produce(f"{topic}-orders", [*orders, no_order])
    names = run_recipes(pulsar_in_spark.spark, cluster.service_url, topic, tmp_path)
    assert peer.read_all(f"{topic}-mirror") == [*orders, no_order]
    assert pulsar_in_spark.spark.read.parquet(f"{tmp_path}/orders-parquet").count() == 4
    assert pulsar_in_spark.spark.read.parquet(f"{tmp_path}/orders-by-batch").count() == 4
    assert names["day"].count() == 4
    (payment,) = peer.read_all(f"{topic}-payments")
    assert (payment.key, payment.event_time) == ("ann", 1_767_225_600_000)
    assert payment.properties == (("source", "shop"),)
    regions = {name: len(peer.read_all(f"{topic}-orders-{name}")) for name in ("eu", "us", "other")}
    assert regions == {"eu": 2, "us": 1, "other": 1}
    copy = topic.replace("default/", "default/copy-of-")
    assert peer.read_all(f"{copy}-orders") == [*orders, no_order]
    assert peer.read_all(f"{copy}-payments") == [payment]
    assert [tuple(row)[:2] for row in names["typed"].collect()] == [("ann", 12.5)]
    assert [tuple(row) for row in names["by_customer"].collect()] == [("ann", 2), ("bob", 1), ("zoe", 1)]


def run_recipes(spark, service_url, topic, home):
    """Run the code of the page up to what nobody has tried, on topics of its own; returns its names."""
    page = ROOT / "docs" / "recipes.md"
    text = page.read_text()
    end = text[: text.index("\n## Delta Lake")].count("\n")
    places = {"pulsar://localhost:6650": service_url, "/tmp/": f"{home}/"}
    names: dict[str, Any] = {"spark": spark}
    for block in blocks(page, "python"):
        if block.line < end:
            wait = "" if ".awaitTermination()" in block.text else ".awaitTermination()"
            places[".start()"] = f".trigger(availableNow=True).start(){wait}"
            code = re.sub(r"(?<=[\"'])(mirror|orders|payments)", rf"{topic}-\1", block.text)
            run_block(block._replace(text=code), places, names)
    return names
