"""FileSpool: what is put comes out once, in order, whether it fits into memory or not."""

import pytest

from pulsar_spark.client.writing import spool as module
from pulsar_spark.client.writing.spool import FileSpool
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.wire.singles import EncodedSingle


def single(value, metadata=b""):
    return EncodedSingle(memoryview(metadata), memoryview(value))


def batch(*parts):
    return Batch(tuple(map(memoryview, parts)), len(parts), sum(map(len, parts)))


def plain(item):
    """All that is sent of an item."""
    if isinstance(item, Batch):
        return b"".join(item.parts), item.messages, item.size
    return bytes(item.metadata), bytes(item.payload)


@pytest.mark.parametrize("in_memory", [1, 1 << 20])
def test_items_of_both_kinds_come_out_in_order(monkeypatch, in_memory):
    monkeypatch.setattr(module, "_IN_MEMORY", in_memory)
    items = [batch(b"a", b"bc"), single(b"value", b"fields"), single(b""), batch(b"d")]
    spool = FileSpool()
    for item in items:
        spool.put(item)
    assert [plain(item) for item in spool.take()] == [plain(item) for item in items]


def test_bytes_are_copied():
    value = bytearray(b"before")
    spool = FileSpool()
    spool.put(single(value))
    value[:] = b"after!"
    (item,) = spool.take()
    assert bytes(item.payload) == b"before"


def test_nothing_was_put():
    spool = FileSpool()
    assert list(spool.take()) == []
    spool.close()


def test_closing_drops_what_was_not_taken():
    spool = FileSpool()
    spool.put(single(b"value"))
    file = spool._file
    spool.close()
    assert file.closed


def test_taking_all_closes_the_file():
    spool = FileSpool()
    spool.put(single(b"value"))
    file = spool._file
    assert len(list(spool.take())) == 1
    assert file.closed
