"""Names that differ from the schema's in upper and lower case only."""

import json

import pyarrow as pa
import pytest

from pulsar_spark.values import formats
from tests.values.json_payloads import json_schema, record


def read(avro, payloads):
    own = json_schema(avro)
    decoder = formats.decoder(own, own, formats.column_type(own))
    found = decoder.decode(pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary()))
    return found, decoder


@pytest.mark.parametrize("item", ["int", {"type": "map", "values": "int"}], ids=["arrow", "objects"])
@pytest.mark.parametrize("count", [1, 5, 100])
@pytest.mark.parametrize("others", [0, 150])
def test_a_payload_whose_names_differ_in_case_only_is_bad(item, count, others):
    avro = record(id=["null", "long"], m=["null", item])
    avro["fields"].append({"name": "name", "type": ["null", "string"]})
    avro["fields"] += [{"name": f"o{each}", "type": ["null", "int"]} for each in range(others)]
    good = [b'{"id":1,"NAME":"x"}', b'{"x":1}', b"{}", b'{"id":null,"ID":1}', b'{"x":"ID"}']
    bad = [
        b'{"ID":1,"Name":"x","other":1}',
        b'{"x":{"id":1},"NAME":"x"}',
        b'{"ID":1,"x":{"id":null}}',
        b'{"\\u0049D":1}',
    ]
    found, decoder = read(avro, [*good, *bad] * count)
    assert found.is_bad.tolist() == ([False] * 5 + [True] * 4) * count
    assert found.column.field("id").to_pylist() == [1, *[None] * 8] * count
    assert decoder.explain(bad[0], None) == "the schema has 'id', but not 'ID'"
    assert decoder.explain(good[1], None) == ""


@pytest.mark.parametrize("count", [1, 100])
def test_names_of_fields_that_are_not_read_count(count):
    """They are those of other columns, and of the version of the payload."""
    old, new = (json_schema(record(**{name: ["null", "long"], "b": "int"})) for name in ("ID", "id"))
    for target in (pa.struct([("id", pa.int64())]), formats.column_type(new)):
        for writer, payload in ((new, b'{"ID":1,"b":2}'), (old, b'{"ID":1}')):
            found = formats.decoder(writer, new, target).decode(
                pa.array([payload, b'{"x":1}'] * count, pa.binary()), pa.nulls(2 * count, pa.binary())
            )
            assert found.is_bad is None
            assert found.column.field("id").null_count == 2 * count


def test_other_payloads_are_read_as_before():
    payloads = [json.dumps({"x": each, "s": None}).encode() for each in range(50)]
    found, _ = read(record(s=["null", "string"]), payloads)
    assert found.is_bad is None
    assert found.column.to_pylist() == [{"s": None}] * 50
