"""Unions in JSON: which member a value is, and how often it is read to find that."""

import json
import random

import numpy as np
import pytest

from pulsar_spark.values.json import budget, objects, unions
from pulsar_spark.values.json.budget import JsonBudget
from pulsar_spark.values.json.objects import explain
from tests.loops import a_few_of
from tests.values.json_payloads import read_objects, tree_of


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


NONE = object()


def as_first(kind, value):
    """What a value is read as, by the rule in one line each; NONE: it is none."""
    if value is None:
        return None
    if isinstance(kind, list):
        return as_union([each for each in kind if each != "null"], value)
    name = kind if isinstance(kind, str) else kind["type"]
    if name == "record":
        if not isinstance(value, dict):
            return NONE
        found = {each["name"]: as_first(each["type"], value.get(each["name"])) for each in kind["fields"]}
    elif name in ("array", "map"):
        if not isinstance(value, list if name == "array" else dict):
            return NONE
        items = value if name == "array" else value.values()
        parts = [as_first(kind["items" if name == "array" else "values"], each) for each in items]
        if NONE in parts:
            return NONE
        return list(zip(value, parts, strict=True)) if name == "map" else parts
    elif name == "string":
        return value if isinstance(value, str) else str(value) if type(value) is int else NONE
    else:
        if name == "boolean":
            return bool(value) if isinstance(value, int) and value in (0, 1) else NONE
        return value if type(value) is int else NONE
    return NONE if NONE in found.values() else found


def as_union(members, value):
    if len(members) == 1:
        return as_first(members[0], value)

    def rank(number):
        kind = members[number]
        name = kind if isinstance(kind, str) else kind["type"]
        looks = {"record": dict, "map": dict, "array": list, "string": str, "boolean": bool, "int": int}[name]
        names = (
            {each["name"] for each in kind["fields"]}
            if name == "record"
            else set(value)
            if name == "map"
            else ()
        )
        return type(value) is not looks, isinstance(value, dict) and not {*value} <= {*names}, number

    for number in sorted(range(len(members)), key=rank):
        found = as_first(members[number], value)
        if found is not NONE:
            return dict.fromkeys(f"member{each}" for each in range(len(members))) | {f"member{number}": found}
    return NONE


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
    read = objects._Columns.read
    monkeypatch.setattr(objects._Columns, "read", lambda *of: calls.append(of) or read(*of))
    tree, text = twice_nested(6, **last)
    node = tree_of(tree)
    found = read_objects(node, [text.encode(), b'{"u":null}', text.encode()])
    assert (found.is_bad is not None) == is_bad
    value = found.column.to_pylist()[2]
    for _ in range(0 if is_bad else 6):
        assert value["u"]["member0"] is None
        assert value["u"]["member1"]["w"] == "t"
        value = value["u"]["member1"]["v"]
    assert is_bad or value == {"n": 1}
    assert len(calls) < 150, "each of the 2 ** 6 ways takes 380"


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
    members = unions._members
    monkeypatch.setattr(
        unions, "_members", lambda groups: (tried.append(each) or each for each in members(groups))
    )
    payloads = [b'{"x":1,"f250":2}', b'{"x":1,"y":2}', b'{"f7":"a","x":1}', b"{}", b'{"f299":1}']
    found = read_objects(node, payloads)
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
    assert tried == [250, 0, 7, 0, 299, 0]


def test_unions_are_not_tried_without_end(monkeypatch):
    monkeypatch.setattr(budget, "AGAIN", 1000)
    records = [
        {
            "type": "record",
            "name": f"R{i}",
            "fields": [
                {"name": f"f{i}", "type": "int"},
                {"name": "x", "type": {"type": "array", "items": "int"}},
            ],
        }
        for i in range(100)
    ]
    node = tree_of({"type": "array", "items": records})
    payload = b'[{"more":1,"x":[%s"a"]}]' % (b"1," * 100)
    assert read_objects(node, [payload, b'[{"f99":1}]', b'[{"x":["a"]}]']).is_bad.tolist() == [
        True,
        False,
        True,
    ]
    assert explain(node, payload) == "its unions have to be read too often to find their types"
    assert explain(node, b'[{"x":["a"]}]') == "field '[0]': a value of none of the union's types"


@pytest.mark.parametrize("seed", a_few_of(20, 7))
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

    tree = [record(3) for _ in range(4)]
    node = tree_of(tree)
    values = [value(4) for _ in range(300)]
    found = read_objects(node, [json.dumps(each).encode() for each in values])
    found.column.validate(full=True)
    monkeypatch.setattr(JsonBudget, "choices", property(lambda _: {}, lambda *_: None), raising=False)
    naive = read_objects(node, [json.dumps(each).encode() for each in values])
    assert naive.column.equals(found.column)
    expected = [as_first(tree, each) for each in values]
    bad = np.zeros(300, np.bool_) if found.is_bad is None else found.is_bad
    assert bad.tolist() == [each is NONE for each in expected]
    assert found.column.to_pylist() == [None if each is NONE else each for each in expected]
