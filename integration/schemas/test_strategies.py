"""Clients that bring schemas of the same fields to one topic: whose the broker takes, and what all read."""

from __future__ import annotations

import json

import pytest
from pulsar import schema as ps

from integration.broker import AdminError
from integration.broker.waiting import wait_until
from integration.helpers import cpp_values
from integration.helpers.java_values import JavaValues, read_values, write_values
from integration.helpers.payloads import definition_of, register
from integration.schemas.test_peers import TYPED, check

ONE_WAY = ("BACKWARD", "FORWARD", "FULL")
STRATEGIES = [f"{each}{more}" for each in ONE_WAY for more in ("", "_TRANSITIVE")]
COLUMNS = "id bigint,item string,lines array<struct<name:string,zip:int>>"
# Whether the number may be null, and whether a line may be.
NULLABLE = {
    "Java's long": (False, False),
    "Java's Long": (True, False),
    "Python's Long(required=True)": (False, False),
    "Python's Long()": (True, False),
    "bigint": (True, True),
}


class Line(ps.Record):  # type: ignore[misc]  # pulsar-client has no types
    name = ps.String()
    zip = ps.Integer()


class Item(ps.Record):  # type: ignore[misc]  # pulsar-client has no types
    id = ps.Long(required=True)
    item = ps.String()
    lines = ps.Array(Line())


class BoxedItem(ps.Record):  # type: ignore[misc]  # pulsar-client has no types
    id = ps.Long()
    item = ps.String()
    lines = ps.Array(Line())


def row(number, name):
    return {"id": number, "item": name, "lines": [{"name": name, "zip": number}]}


def python_item(values):
    return Item(id=values["id"], item=values["item"], lines=[Line(**line) for line in values["lines"]])


@pytest.fixture(params=["AVRO", pytest.param("JSON", marks=pytest.mark.long)])
def kind(request):
    return request.param


def python_schema(kind, of):
    return (ps.AvroSchema if kind == "AVRO" else ps.JsonSchema)(of)


def definitions(here, cluster, peer, admin, topic, kind):
    """The schema of each client, from a topic that it made."""
    topics = {name: f"{topic}-{number}" for number, name in enumerate(NULLABLE)}
    java = [(topics["Java's long"], "Item"), (topics["Java's Long"], "BoxedItem")]
    tasks = [JavaValues(each, {"type": kind, "class": f"TypedPeer${name}"}, []) for each, name in java]
    write_values(cluster.service_url, tasks)
    cpp_values.produce(peer, topics["Python's Long(required=True)"], python_schema(kind, Item), [])
    cpp_values.produce(peer, topics["Python's Long()"], python_schema(kind, BoxedItem), [])
    rows = here.rows([tuple(row(1, "a").values())], COLUMNS)
    here.write(rows, topics["bigint"], valueFormat="columns", schemaType=kind.lower())
    return {name: definition_of(admin, each) for name, each in topics.items()}


def test_whose_schema_the_broker_takes(pulsar_in_spark, cluster, peer, admin, topic, kind):
    """A reader takes all that its writer may write, in one direction or in both."""
    known = definitions(pulsar_in_spark, cluster, peer, admin, topic, kind)
    namespace = f"public/strategies-{topic.rpartition('-')[2]}"
    admin.create_namespace(namespace)
    for number, first in enumerate(known):
        register(admin, f"persistent://{namespace}/{number}", kind, known[first])

    def refusal(number, definition):
        """The strategy that refuses it."""
        body = {"type": kind, "schema": json.dumps(definition), "properties": {}}
        try:
            admin.request("POST", f"schemas/{namespace}/{number}/compatibility", body)
        except AdminError as error:
            return str(error).partition("with strategy ")[2].partition(":")[0]
        return ""

    none = known["bigint"] | {"fields": [{"name": "id", "type": "string"}]}
    for strategy in STRATEGIES:
        admin.request("PUT", f"namespaces/{namespace}/schemaCompatibilityStrategy", strategy)
        for number, first in enumerate(known):
            wait_until(lambda number=number, strategy=strategy: refusal(number, none) == strategy)
            for second in known:
                pairs = list(zip(NULLABLE[first], NULLABLE[second], strict=True))
                is_read = {"BACKWARD": all(new or not old for old, new in pairs)}
                is_read["FORWARD"] = all(old or not new for old, new in pairs)
                is_read["FULL"] = all(is_read.values())
                expected = "" if is_read[strategy.partition("_")[0]] else strategy
                assert refusal(number, known[second]) == expected, (first, second)


@pytest.mark.parametrize("first", ["Java", pytest.param("Python", marks=pytest.mark.long), "Spark"])
def test_all_read_what_all_write(pulsar_in_spark, cluster, peer, topic, kind, first):
    """The sink writes by the topic's schema; where it is the first, it is given that of the class."""
    here, java, python = pulsar_in_spark, {"type": kind, "class": "TypedPeer$Item"}, python_schema(kind, Item)

    def by_java(values):
        write_values(cluster.service_url, [JavaValues(topic, java, [values])])

    def by_python(values):
        cpp_values.produce(peer, topic, python, [python_item(values)])

    def by_spark(values):
        rows = here.rows([tuple(values.values())], COLUMNS)
        of_class = {"valueSchema": json.dumps(Item.schema())} if first == "Spark" else {}
        here.write(rows, topic, valueFormat="columns", schemaType=kind.lower(), **of_class)

    writers = {"Java": by_java, "Python": by_python, "Spark": by_spark}
    names = [first, *(name for name in writers if name != first)]
    rows = [row(number, name) for number, name in enumerate(names)]
    for each in rows:
        writers[each["item"]](each)
    check(here.read(topic, **TYPED), COLUMNS, rows)
    assert [value for _, value in read_values(cluster.service_url, {topic: java})[topic]] == rows
    found = cpp_values.read(peer, topic, python)
    assert [(each.id, each.item, each.lines[0].zip) for each in found] == [
        (each["id"], each["item"], each["id"]) for each in rows
    ]
