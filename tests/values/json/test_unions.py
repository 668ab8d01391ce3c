"""Unions in JSON: which member a value is, and how often it is read to find that."""

import json
import random

import pytest

from pulsar_spark.values.json import leaves, unions
from pulsar_spark.values.json.columns import JsonRoom
from pulsar_spark.values.json.general import explain, read_rows
from tests.values.json_payloads import tree_of


def twice_nested(depth, **last):
    """Unions in each other, whose two records hold the same type; the payload is of the second, if any."""
    avro: object = {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "int"}]}
    text = json.dumps({"n": last["n"]})
    for level in range(1, depth + 1):
        within = avro["name"] if isinstance(avro, dict) else avro
        pair = [
            {"type": "record", "name": f"X{level}", "fields": [{"name": "v", "type": avro}, *last["x"]]},
            {"type": "record", "name": f"Y{level}", "fields": [{"name": "v", "type": within}, *last["y"]]},
        ]
        avro = {"type": "record", "name": f"R{level}", "fields": [{"name": "u", "type": pair}]}
        text = f'{{"u":{{"v":{text},"w":"t"}}}}'
    return avro, text


W_INT, W_TEXT = [{"name": "w", "type": "int"}], [{"name": "w", "type": "string"}]


@pytest.mark.parametrize(
    ("last", "is_bad"),
    [
        ({"n": "x", "x": [], "y": []}, True),
        ({"n": 1, "x": W_INT, "y": W_TEXT}, False),
        ({"n": "x", "x": W_INT, "y": W_TEXT}, True),
        ({"n": 1, "x": W_INT, "y": W_INT}, True),
    ],
)
def test_what_unions_in_each_other_are_is_found_once_at_each_place(last, is_bad, monkeypatch):
    calls = []
    parse = leaves._integer
    monkeypatch.setattr(leaves, "_integer", lambda *of: calls.append(of) or parse(*of))
    tree, text = twice_nested(8, **last)
    node = tree_of(tree)
    found = read_rows(node, [text.encode(), b'{"u":null}', text.encode()])
    assert (found.is_bad is not None) == is_bad
    value = found.column.to_pylist()[2]
    for _ in range(0 if is_bad else 8):
        assert value["u"]["member0"] is None
        assert value["u"]["member1"]["w"] == "t"
        value = value["u"]["member1"]["v"]
    assert is_bad or value == {"n": 1}
    assert len(calls) < 100, "tried with each of the 2 ** 8 ways"


def test_of_many_records_those_with_the_names_are_read(monkeypatch):
    records = [
        {
            "type": "record",
            "name": f"R{i}",
            "fields": [{"name": f"f{i}", "type": "int"}, {"name": "x", "type": "int"}],
        }
        for i in range(300)
    ]
    node = tree_of(records)
    tried = []
    monkeypatch.setattr(
        unions.JsonUnions,
        "_try",
        lambda self, number, *of, real=unions.JsonUnions._try: (
            tried.append(number),
            real(self, number, *of),
        )[1],
    )
    payloads = [b'{"x":1,"f250":2}', b'{"x":1,"y":2}', b'{"f7":"a","x":1}', b"{}", b'{"f299":1}']
    found = read_rows(node, payloads)
    assert found.is_bad is None
    rows = [
        {name: each for name, each in row.items() if each is not None} for row in found.column.to_pylist()
    ]
    assert rows == [
        {"member250": {"f250": 2, "x": 1}},
        {"member0": {"f0": None, "x": 1}},
        {"member0": {"f0": None, "x": 1}},
        {"member0": {"f0": None, "x": None}},
        {"member299": {"f299": 1, "x": None}},
    ]
    assert tried == [0, 250, 0, 0, 7, 0, 0, 299]


def test_unions_are_not_tried_without_end():
    records = [
        {
            "type": "record",
            "name": f"R{i}",
            "fields": [{"name": f"f{i}", "type": "int"}, {"name": "x", "type": "int"}],
        }
        for i in range(600)
    ]
    node = tree_of({"type": "array", "items": records})
    payload = b'[{"more":"%s","x":"a"}]' % (b"-" * 20_000)
    assert read_rows(node, [payload, b'[{"f599":1}]']).is_bad.tolist() == [True, False]
    assert explain(node, payload) == "field '[0]': its unions have to be read too often to find their types"


@pytest.mark.parametrize("seed", range(20))
def test_the_member_of_a_union_is_the_one_that_all_ways_give(seed, monkeypatch):
    """With and without a look at names, and with nothing remembered: the same values."""
    pick = random.Random(seed)
    names = iter(range(1000))

    def record(depth):
        keys = pick.sample("abcd", pick.randint(1, 3))
        fields = [{"name": key, "type": kind(depth - 1)} for key in keys]
        return {"type": "record", "name": f"N{next(names)}", "fields": fields}

    def kind(depth):
        if depth <= 0 or pick.random() < 0.4:
            return pick.choice(("int", "string", "boolean", {"type": "array", "items": "int"}))
        if pick.random() < 0.2:
            return {"type": "map", "values": kind(depth - 1)}
        return [record(depth) for _ in range(pick.randint(1, 4))] + pick.choice(([], ["null"], ["int"]))

    def value(depth):
        if depth <= 0 or pick.random() < 0.3:
            return pick.choice((1, "t", True, None, [1, 2], [True], {}))
        return {key: value(depth - 1) for key in pick.sample("abcde", pick.randint(0, 3))}

    node = tree_of([record(3) for _ in range(4)])
    payloads = [json.dumps(value(4)).encode() for _ in range(300)]
    found = read_rows(node, payloads)
    found.column.validate(full=True)
    monkeypatch.setattr(unions, "_FEW_MEMBERS", 1000)
    plain = read_rows(node, payloads)
    monkeypatch.setattr(JsonRoom, "choices", property(lambda room: {}, lambda room, value: None))
    naive = read_rows(node, payloads)
    for other in (plain, naive):
        assert other.column.equals(found.column)
        assert [row for row, bad in enumerate(other.is_bad) if bad] == [
            row for row, bad in enumerate(found.is_bad) if bad
        ]
