"""The reader that decodes nothing: it gives each message a row, and the bytes of all entries."""

import pytest

from integration.bench import limits, stages
from integration.bench.copies import copied
from integration.bench.measure import Result, Side
from integration.bench.shapes import SHAPES
from integration.bench.transport import repeated_batch
from pulsar_spark.wire.entry.codecs import decompress
from pulsar_spark.wire.entry.entries import Entries, decode


@pytest.mark.parametrize("name", ["value", "batched", "lz4", "lz4-whole"])
def test_all_bytes_of_the_entries_are_copied(name, monkeypatch):
    monkeypatch.setattr(stages, "_MEBIBYTES", 9)
    shape = SHAPES[name]
    frames = b"".join(stages._frames(stages._packed(shape, stages._batches(shape))))
    entries = decode(stages._messages([frames])).entries
    batch = repeated_batch(shape)
    smaller = Entries.of([list(entries)[-1]])
    assert smaller.messages[0] < entries.messages[0]
    entries = Entries.of([*smaller, *entries])
    groups = [entries[:5], entries[5:]]
    batches = list(copied(groups, batch, shape.size))
    assert len(batches) > 1
    assert sum(each.num_rows for each in batches) == entries.messages.sum()
    assert all(each.schema == batch.schema and each.num_rows <= batch.num_rows for each in batches)
    for each in batches:
        each.validate(full=True)
    kinds, sizes = entries.compression, entries.uncompressed_size
    plain = [
        bytes(decompress(int(kind), payload, int(size), 1 << 20))
        for kind, payload, size in zip(kinds, entries.payloads, sizes, strict=True)
    ]
    given = b"".join(each.column(0).buffers()[2].to_pybytes() for each in batches)
    assert [given.count(each) for each in plain] == [2, *[1] * (len(plain) - 2), 2]


def test_medians_are_compared_with_both_ends_alone():
    rates = {Side.ENDS: [100.0, 300.0, 200.0], Side.COPY: [150.0, 170.0, 160.0], Side.OURS: [1.0, 2.0, 150.0]}
    cpus = {side: [1.0, 2.0, 3.0] for side in rates}
    shown = limits.line(Result("read", SHAPES["lz4"], 4, rates, cpus))
    assert "decompress and copy 160 (80%), 2.00 us" in shown
    assert "pulsar_spark 2 (1%), 2.00 us" in shown
