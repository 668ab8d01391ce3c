"""The fuzzers find nothing, and would find what they are for."""

import subprocess
import sys

import pyarrow as pa

from integration.helpers.local_spark import ROOT
from integration.hostile import entries
from integration.hostile.__main__ import main
from pulsar_spark.client.reading import decoded_messages
from pulsar_spark.wire.columns import message_columns


def test_a_small_run_finds_nothing():
    # In a process of its own: it takes address space away. With any seed it takes up to 10 s of CPU.
    counts = "--entries 200 --frames 200 --values 200 --json 100 --protobuf 100 --written 200 --costs 2"
    more = "--schemas 1 --peers 0.1 --seed 7"
    command = [sys.executable, "-m", "integration.hostile", *f"{counts} {more}".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 broken inputs: nothing found" in done.stdout
    assert "2 tasks of entries that become large: nothing found" in done.stdout
    assert "1 large schemas: nothing found" in done.stdout
    assert "5 peers without end: nothing found" in done.stdout
    assert done.stderr == "", "no peer has failed"


def found_by(seeds, one):
    """What is found first; None where nothing is."""
    for seed in seeds:
        try:
            one(seed)
        except entries.DifferenceError as error:
            return str(error)
    return None


def test_a_raw_error_of_one_column_is_found(monkeypatch):
    def raw(texts):
        return pa.array([text.decode(errors="replace") for text in texts.to_pylist()], pa.string())

    for module in (message_columns, decoded_messages):
        monkeypatch.setattr(module, "to_strings", raw)
    assert "Error" in found_by((f"1/{number}" for number in range(200)), entries.one_round)


def test_what_is_found_is_said_with_its_seed(monkeypatch, capsys):
    def differs(seed, count):
        yield count // 2
        raise entries.DifferenceError("seed 5/3: this")

    monkeypatch.setattr(entries, "run", differs)
    assert main(["--entries", "10", "--seed", "5"]) == 1
    assert "failed, --seed 5: seed 5/3: this" in capsys.readouterr().out
