"""The figures of latency, and the source that does nothing."""

import socket

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from integration.bench import floor, latency
from integration.bench.floor import FloorReader, Numbers
from integration.bench.latency import Sample


@pytest.fixture
def server(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "news"))
        listening.listen()
        yield listening


@pytest.fixture
def reader(tmp_path, monkeypatch):
    monkeypatch.setattr(floor, "_WAIT", 0.0)
    made = FloorReader(str(tmp_path / "news"))
    yield made
    made.stop()


def latest(reader, number):
    return reader.latestOffset({"number": number}, ReadAllAvailable())


def test_each_byte_makes_a_row_with_its_number(server, reader):
    assert latest(reader, 0) == {"number": 0}
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"\0")
        assert latest(reader, 7) == {"number": 8}
        connection.sendall(b"\0\0")
        assert latest(reader, 8) == {"number": 10}
        assert latest(reader, 10) == {"number": 10}
    assert reader.partitions({"number": 10}, {"number": 10}) == []
    (task,) = reader.partitions({"number": 8}, {"number": 10})
    assert task == Numbers(9, 10)
    (batch,) = reader.read(task)
    assert batch.to_pydict() == {"value": [b"9", b"10"]}


def test_it_fails_where_nobody_tells_it_of_news_any_more(server, reader):
    latest(reader, 0)
    server.accept()[0].close()
    with pytest.raises(EOFError, match="nobody tells"):
        latest(reader, 0)


def test_the_figures_stand_beside_the_floor_and_the_goals():
    ours = [Sample(100 + n, 200 + n) for n in range(101)]
    least = [Sample(140, 140) for n in range(101)]
    assert latency.lines(ours, least) == [
        "\n101 samples, milliseconds from produce to",
        "the call of the function: pulsar_spark median 150, p99 199; floor median 140, p99 140",
        "  above the floor: median +10 (needs at most 50), p99 +59 (needs at most 100)",
        "its row in the driver: pulsar_spark median 250, p99 299; floor median 140, p99 140",
        "  above the floor: median +110 (needs at most 50, ABOVE), p99 +159 (needs at most 100, ABOVE)",
    ]


def test_stages_that_one_of_them_does_not_have_count_as_nothing():
    shown = latency.stage_lines([{"addBatch": 80}, {"addBatch": 90}], [{"addBatch": 70, "walCommit": 20}])
    assert "  addBatch: pulsar_spark 85, floor 70" in shown
    assert "  walCommit: pulsar_spark 0, floor 20" in shown
