"""The structures of public schemas: nulls, roots that are no record, bad defaults, unions, recursion.

Each is read as fastavro reads it, and written back as it was. A field that contains itself is refused by its
name.
"""

import copy
import random
from collections import Counter

import pyarrow as pa
import pytest

from pulsar_spark.errors import UnsupportedError
from pulsar_spark.values import formats
from pulsar_spark.values.avro.avro_types import parse
from tests.loops import for_seeds
from tests.values.avro.test_avro_write import read
from tests.values.random_avro import (
    Names,
    bare,
    column,
    random_record,
    random_type,
    random_value,
    schema_of_tree,
)

BAD = [("int", ""), ("float", "NaN"), ({"type": "map", "values": "int"}, []), ("string", 7)]


def structure(rng, names):
    """A tree as the generators of public schemas draw them, and the name of its recursive field."""
    if rng.random() < 0.3:
        return random_type(rng, 2, names), ""
    tree = random_record(rng, 2, 5, names)
    if rng.random() < 0.3:
        kind, default = rng.choice(BAD)
        tree["fields"].append({"name": "bad", "type": kind, "default": default})
    if rng.random() < 0.5:
        some = ["null", random_record(rng, 1, 3, names), random_record(rng, 1, 3, names), "string"]
        tree["fields"].append({"name": "any", "type": rng.sample(some, len(some))})
    if rng.random() < 0.2:
        kind = rng.choice((["null", tree["name"]], {"type": "array", "items": tree["name"]}))
        default = [] if isinstance(kind, dict) else None
        tree["fields"].append({"name": "next", "type": kind, "default": default})
        return tree, "next"
    return tree, ""


def without_bad_defaults(tree):
    """As fastavro takes it, which reads no default here."""
    if not isinstance(tree, dict) or "fields" not in tree:
        return tree
    fields = [{key: each[key] for key in each if key != "default"} for each in tree["fields"]]
    return tree | {"fields": fields}


def decoded(schema, payloads):
    kind = formats.column_type(schema)
    return formats.decoder(schema, schema, kind).decode(payloads, pa.nulls(len(payloads), pa.binary()))


def written(schema, rows):
    if not pa.types.is_struct(rows.type):
        rows = pa.StructArray.from_arrays([rows], ["value"])
    return formats.encoder(schema, rows.type)(rows).values


@for_seeds(12, 4)
def test_public_structures(seed):
    """A seed has 25 structures: ``range(48)`` are as many as the public schemas."""
    rng = random.Random(seed)
    reached: Counter = Counter()
    for _ in range(25):
        whole, recursive = structure(rng, Names())
        schema, tree = schema_of_tree(whole), copy.deepcopy(whole)
        if recursive:
            tree["fields"].pop()
            with pytest.raises(UnsupportedError, match=r"'next.*' of the topic's schema is recursive"):
                formats.check_columns(schema)
        avro = parse(schema_of_tree(tree))
        values = [random_value(rng, avro) for _ in range(5)]
        rows = column(values, avro)
        payloads = written(schema, rows)
        found = decoded(schema, payloads)
        if found.is_bad is not None:  # a limit of the page
            kind = formats.column_type(schema)
            why = formats.decoder(schema, schema, kind).explain(
                payloads[int(found.is_bad.argmax())].as_py(), None
            )
            assert "too many for the size of the value" in why
            reached["more nulls than bytes"] += 1
            continue
        assert found.column == rows
        assert written(schema, found.column) == payloads
        for value, payload in zip(values, payloads.to_pylist(), strict=True):
            if payload is not None:
                own = read(without_bad_defaults(whole), payload)
                assert own == (bare(value) | {"next": own["next"]} if recursive else bare(value))
        reached[recursive or type(avro).__name__] += 1
    assert reached["AvroRecord"] > 5
    assert len(reached) > 1
