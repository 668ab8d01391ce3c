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
    bad = [b'{"ID":1,"Name":"x","other":1}', b'{"x":{"id":1},"NAME":"x"}']
    found, decoder = read(avro, [*good, *bad] * count)
    assert found.is_bad.tolist() == [False, False, False, False, False, True, True] * count
    assert found.column.field("id").to_pylist() == [1, None, None, None, None, None, None] * count
    assert decoder.explain(bad[0], None) == "the schema has 'id', but not 'ID'"
    assert decoder.explain(good[1], None) == ""


def test_other_payloads_are_read_as_before():
    payloads = [json.dumps({"x": each, "s": None}).encode() for each in range(50)]
    found, _ = read(record(s=["null", "string"]), payloads)
    assert found.is_bad is None
    assert found.column.to_pylist() == [{"s": None}] * 50
