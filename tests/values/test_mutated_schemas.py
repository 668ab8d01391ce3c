"""Encoders by schemas that others have broken: values that are read again, or documented errors."""

import io
import json
import random
from collections import Counter

import fastavro

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import SchemaType
from pulsar_spark.values.avro import avro_write
from pulsar_spark.values.avro.avro_types import parse
from pulsar_spark.values.json import json_write
from pulsar_spark.values.schema_of import merged
from tests.loops import for_seeds
from tests.values.random_avro import column, mutated, random_case, schema_of_tree


def is_read_again(tree, payloads):
    """Whether fastavro takes the schema, which is stricter there than brokers; then it must read all."""
    try:
        parsed = fastavro.parse_schema(json.loads(json.dumps(tree)))
    except Exception:  # noqa: BLE001 - it raises anything
        return False
    for payload in payloads:
        data = io.BytesIO(payload)
        fastavro.schemaless_reader(data, parsed)
        assert data.read() == b""
    return True


@for_seeds(12, 4)
def test_encoders_by_mutated_schemas(seed):
    rng = random.Random(seed)
    reached: Counter = Counter()
    for _ in range(15):
        tree, avro, values = random_case(rng, rng.choice((0, 1, 4)), depth=2)
        rows = column(values, avro)
        for _ in range(6):
            broken = mutated(rng, tree)
            for kind, module in ((SchemaType.AVRO, avro_write), (SchemaType.JSON, json_write)):
                try:
                    payloads = module.encoder(schema_of_tree(broken, kind), rows.type)(rows).values
                except (SchemaError, UnsupportedError) as error:
                    reached[type(error)] += 1
                    continue
                reached[kind] += 1
                assert len(payloads) == len(rows)
                if kind is SchemaType.JSON:
                    assert all(json.loads(payload) is not None for payload in payloads.to_pylist())
                else:
                    reached["read again"] += is_read_again(broken, payloads.to_pylist())
    assert reached[SchemaType.AVRO] > 3
    assert reached[SchemaType.JSON] > 3
    assert reached["read again"] > 2
    assert reached[SchemaError] > 5


@for_seeds(12, 4)
def test_mutated_schemas_are_merged_or_refused(seed):
    rng = random.Random(seed)
    reached: Counter = Counter()
    for _ in range(60):
        tree, avro, values = random_case(rng, 1, depth=2)
        rows = column(values, avro)
        try:
            made = merged(schema_of_tree(mutated(rng, tree)), rows.type)
        except (SchemaError, UnsupportedError, OptionError) as error:
            reached[type(error)] += 1
            continue
        reached[made is None] += 1
        if made is not None:
            assert merged(made, rows.type) is None
            avro_write.encoder(made, rows.type)
            assert len(parse(made).fields) >= len(avro.fields)
    assert reached[True] > 1
    assert reached[SchemaError] > 10
