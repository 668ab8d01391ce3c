"""The fuzzers find nothing, and would find what they are for."""

import math
import re
import subprocess
import sys

import pyarrow as pa
import pytest

from integration.helpers.local_spark import ROOT
from integration.hostile import costs, entries, frames, large_schemas, peers
from integration.hostile.__main__ import main
from pulsar_spark.protocol import reopening
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns import keys_and_texts
from pulsar_spark.wire.entry import codecs, entry_work


def test_a_small_run_finds_nothing():
    # In a process of its own: it takes address space away. With any seed it takes up to 10 s of CPU.
    counts = "--entries 200 --frames 200 --values 200 --json 100 --protobuf 100 --written 200 --costs 2"
    more = "--schemas 1 --peers 0.1 --seed 5"
    command = [sys.executable, "-m", "integration.hostile", *f"{counts} {more}".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 broken inputs: nothing found" in done.stdout
    assert "2 entries that become large: nothing found" in done.stdout
    assert "1 large schemas: nothing found" in done.stdout
    assert "5 peers without end: nothing found" in done.stdout
    assert done.stderr == "", "no peer has failed"


def test_the_same_seed_gives_the_same_inputs():
    assert [entries.one_round(f"7/{number}") for number in range(3)] == [
        entries.one_round(f"7/{number}") for number in range(3)
    ]


def found_by(seeds, one):
    """What is found first; None where nothing is."""
    for seed in seeds:
        try:
            one(seed)
        except (entries.DifferenceError, frames.UndocumentedError, costs.CostlyError) as error:
            return str(error)
    return None


@pytest.mark.long
def test_a_size_that_is_verified_in_sum_only_is_found(monkeypatch):
    """One entry could take bytes of another's."""

    def unverified(blocks, sizes):
        codec = codecs._codec(pb.LZ4)
        held = [next(size for size in range(2000) if codecs._fits(codec, block, size)) for block in blocks]
        plain = b"".join(
            codec.decompress(block, size, asbytes=True) for block, size in zip(blocks, held, strict=True)
        )
        if len(plain) != sum(sizes):
            return None
        ends = [sum(sizes[: row + 1]) for row in range(len(sizes))]
        gap = bytes(codecs.SEPARATOR_SIZE)
        parts = [plain[end - size : end] + gap for end, size in zip(ends, sizes, strict=True)]
        return pa.py_buffer(b"".join(parts))

    monkeypatch.setattr("pulsar_spark.client.reading.decode.decompress_together", unverified)
    found = found_by((f"1/{number}" for number in range(3000)), entries.one_round)
    assert found is not None
    assert found.startswith("seed 1/")


def test_a_raw_error_of_one_column_is_found(monkeypatch):
    def raw(texts):
        return pa.array([text.decode(errors="replace") for text in texts.to_pylist()], pa.string())

    monkeypatch.setattr(keys_and_texts, "to_strings", raw)
    assert "Error" in found_by((f"1/{number}" for number in range(200)), entries.one_round)


@pytest.mark.parametrize("target", frames.TARGETS)
def test_an_error_that_is_not_documented_is_found(target, monkeypatch):
    prepare, documented = frames.TARGETS[target]

    def breaks(wire):
        def act():
            prepare(wire)()
            raise KeyError("raw")

        return act

    monkeypatch.setitem(frames.TARGETS, target, (breaks, documented))
    found = found_by((f"1/{number}" for number in range(100)), lambda seed: frames.one_input(target, seed))
    assert found.startswith(f"{target}, seed 1/")
    assert "KeyError" in found


def test_a_peer_that_is_asked_too_often_is_found(monkeypatch):
    monkeypatch.setattr(reopening, "_IN_A_ROW", 10**6)
    with pytest.raises(frames.UndocumentedError, match="subscriptions that end after a message: "):
        list(peers.run(1.0))


def test_what_takes_too_long_is_found(monkeypatch):
    monkeypatch.setattr(frames, "_SECONDS", -1.0)
    assert "it took" in found_by(["1/1"], lambda seed: frames.one_input("decode", seed))


@pytest.mark.long
def test_each_kind_of_entry_is_drawn_and_has_few_bytes():
    kinds = {found_by([f"1/{number}"], one_of_any_cost).split()[5] for number in range(40)}
    assert kinds == {"AVRO,", "JSON,", "KEY_VALUE,", "PROTOBUF_NATIVE,", "no"}


def one_of_any_cost(seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "_SECONDS", -1.0)
        costs.one_task(seed)


@pytest.mark.parametrize("limit", ["_SECONDS", "_MEMORY"])
def test_what_costs_too_much_is_found(limit, monkeypatch):
    monkeypatch.setattr(costs, limit, -1 if limit == "_SECONDS" else 1)
    found = found_by((f"1/{number}" for number in range(20)), costs.one_task)
    assert "seed 1/" in found


@pytest.mark.parametrize("limit", ["_LOAD_SECONDS", "_WORK_SECONDS", "_MEMORY"])
def test_a_schema_that_costs_too_much_is_found(limit, monkeypatch):
    monkeypatch.setattr(large_schemas, limit, -math.inf)  # memory may shrink, too
    what = "a worker with" if limit == "_WORK_SECONDS" else "load() of"
    with pytest.raises(costs.CostlyError, match=rf"{re.escape(what)} long defaults \(AVRO\)"):
        large_schemas.one_schema("long defaults")


@pytest.mark.long
def test_items_without_a_limit_are_found(monkeypatch):
    """Of few stored bytes, as it was."""
    monkeypatch.setattr(entry_work, "ITEMS_PER_UNCOMPRESSED", 1000.0)
    monkeypatch.setattr(costs, "_SIZES", (20_000_000,))
    monkeypatch.setattr(costs, "_ROWS", (0,))
    assert "CPU" in found_by((f"1/{number}" for number in range(40)), costs.one_task)


def test_what_is_found_is_said_with_its_seed(monkeypatch, capsys):
    def differs(seed, count):
        yield count // 2
        raise entries.DifferenceError("seed 5/3: this")

    monkeypatch.setattr(entries, "run", differs)
    assert main(["--entries", "10", "--seed", "5"]) == 1
    assert "failed, --seed 5: seed 5/3: this" in capsys.readouterr().out
