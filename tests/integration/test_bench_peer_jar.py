"""The peer's jar and its line; what it reads and writes is checked where there is a jar."""

import pickle
import threading
import zipfile

import pytest

from integration.bench import peer_jar
from integration.bench.measure import Result, Side
from integration.bench.shapes import SHAPES

SERVICES = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


def jar_of(folder, text):
    jar = folder / "peer.jar"
    with zipfile.ZipFile(jar, "w") as made:
        if text is not None:
            made.writestr(SERVICES, text)
    return jar


def test_the_class_that_a_jar_registers_is_found(tmp_path):
    jar = jar_of(tmp_path, "# a licence\n\norg.example.Provider # ours\n")
    assert peer_jar.data_source_of(jar) == "org.example.Provider"


@pytest.mark.parametrize(("text", "count"), [(None, 0), ("", 0), ("# a.B\n", 0), ("a.B\na.C\n", 2)], ids=str)
def test_a_jar_without_one_data_source_is_refused(tmp_path, text, count):
    with pytest.raises(ValueError, match=f"registers {count} data sources"):
        peer_jar.data_source_of(jar_of(tmp_path, text))


def test_an_error_that_cannot_be_pickled_reaches_the_caller_as_text():
    def fails():
        raise OSError("the queue is full", threading.RLock())

    with pytest.raises(RuntimeError, match=r"org\.example\.Provider: .*the queue is full") as caught:
        peer_jar.reported(fails, "org.example.Provider")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def line_of(direction, shape, ours, peers, cpu):
    rates = {Side.OURS: [ours], Side.PEER: [peers]}
    return peer_jar.line(Result(direction, SHAPES[shape], 1, rates, {Side.OURS: [cpu], Side.PEER: [1.85]}))


def test_goals_stand_beside_the_ratios():
    assert line_of("read", "batched", 1_900_000.0, 1_000_000.0, 1.5) == (
        "read, 100 bytes, batched, partitions: 1: 1,900,000/s, peer 1,000,000/s, 1.90 x (needs 1.8 x); "
        "us of CPU a row: 1.50, peer 1.85 (needs less)"
    )
    assert "0.90 x (needs 1 x, BELOW); us of CPU a row: 1.85, peer 1.85 (needs less, ABOVE)" in line_of(
        "write", "whole", 90.0, 100.0, 1.85
    )
    assert "1.10 x; us" in line_of("read", "whole", 110.0, 100.0, 1.0)


def test_writes_stand_beside_both_ends_alone():
    rates = {Side.OURS: [92.0], Side.PEER: [100.0], Side.ENDS: [102.0]}
    cpus = {Side.OURS: [7.8], Side.PEER: [6.4], Side.ENDS: [6.6]}
    shown = peer_jar.line(Result("write", SHAPES["lz4"], 1, rates, cpus))
    assert shown.endswith("(needs less, ABOVE); both ends alone 1.02 x the peer's rate, 6.60 us")
