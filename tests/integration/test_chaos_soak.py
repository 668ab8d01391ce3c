"""The judgement of a long run: what grows is found, and noise that the floor has as well is not."""

import json
import random

import pytest

from integration.chaos.soak import compare, figures, judge, quarters, read_samples


def a_run(samples=240, **changes):
    """Samples that are flat but for noise.

    Args:
        samples: how many, one every 30 s.
        changes: a function each that changes a sample, given how much of the run is over, 0 to 1.
    """
    noise = random.Random(5)
    made = []
    for number in range(samples):
        busy = noise.choice([1.0, 1.0, 1.3, 4.0])  # what else the machine does: both queries have it
        sample = {
            "seconds": number * 30.0,
            "heap": 65 + noise.uniform(-1, 1),
            "mib": {"driver": 118.0, "jvm": 480.0 + number, "planner": 160.0, "workers": 1500.0},
            "files": {"driver": 12, "jvm": 384, "planner": 11, "workers": 128},
            "workers": {str(pid): 90.0 for pid in range(16)},
            "load": 1.0,
            "batches": [[number * 6 + n, round(600 * busy) + noise.randint(-9, 9), 1000] for n in range(6)],
            "floor": [[number * 6 + n, round(300 * busy) + noise.randint(-9, 9), 50] for n in range(6)],
        }
        for change in changes.values():
            change(sample, number / samples)
        made.append(sample)
    return made


def changed(samples):
    """The names of what is not flat, as the error has them."""
    rows = []
    try:
        rows.extend(judge(samples))
    except AssertionError as error:
        named = str(error).removeprefix("not flat: ").split("; ")
        assert len(rows) == 1 + len(figures(samples))  # the whole table came before the error
        assert named == [name for name, *_, verdict in rows if verdict == "NO"]
        return named
    return []


def test_noise_is_flat():
    assert changed(a_run()) == []


def test_a_busy_second_half_is_flat_where_the_floor_has_it_too():
    def slow(sample, over):
        for key in ("batches", "floor"):
            sample[key] = [[n, took * (1 + (over > 0.5)), rows] for n, took, rows in sample[key]]

    samples = a_run(slow=slow)
    assert changed(samples) == []
    assert {each.name: each.ratio for each in figures(samples)}["micro-batch, ms"] > 1.8


def leak_heap(sample, over):
    sample["heap"] += 8 * over


def leak_planner(sample, over):
    sample["mib"]["planner"] += 20 * over


def leak_workers(sample, over):
    sample["mib"]["workers"] *= 1 + 0.12 * over


def leak_process(sample, over):
    sample["workers"] |= {f"left {number}": 90.0 for number in range(int(over * 4))}


def leak_files(sample, over):
    sample["files"]["planner"] += int(over * 4)


def slow_down(sample, over):
    sample["batches"] = [[n, took * (1 + 0.12 * over), rows] for n, took, rows in sample["batches"]]


def shrink(sample, over):
    sample["mib"]["driver"] *= 1 - 0.12 * over


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (leak_heap, "heap after a collection, MiB"),
        (leak_planner, "planner, resident MiB"),
        (leak_workers, "all workers, resident MiB"),
        (leak_process, "number of workers"),
        (leak_files, "planner, open files"),
        (slow_down, "micro-batch / floor"),
        (shrink, "driver's Python, resident MiB"),
    ],
)
def test_what_changes_slowly_is_found_and_nothing_else(change, name):
    assert changed(a_run(change=change)) == [name]


def test_what_has_filled_up_in_the_first_quarter_is_flat():
    def fill(sample, over):
        sample["heap"] += 200 * min(over, 0.25)

    assert changed(a_run(fill=fill)) == []


def test_a_sample_belongs_to_the_quarter_before_it():
    parts = quarters([{"seconds": number * 30.0} for number in range(9)])
    assert [[sample["seconds"] for sample in part] for part in parts] == [
        [0.0, 30.0, 60.0],
        [90.0, 120.0],
        [150.0, 180.0],
        [210.0, 240.0],
    ]


@pytest.mark.parametrize("samples", [1, 3])
def test_a_run_that_is_too_short_to_judge_is_an_error(samples):
    with pytest.raises(ValueError, match="too few"):
        list(judge(a_run(samples)))


def test_the_file_is_read_as_it_was_written(tmp_path):
    samples = a_run(3)
    file = tmp_path / "samples.jsonl"
    file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    assert read_samples(file) == samples


@pytest.mark.parametrize(
    ("numbers", "missing", "doubled"),
    [([2, 0, 1], 0, 0), ([0, 2], 1, 0), ([0, 1, 2, 2, 2], 0, 2), ([1, 1, 1], 2, 2), ([], 3, 0)],
)
def test_rows_are_compared_as_multisets(numbers, missing, doubled):
    assert compare(iter(numbers), 3) == (missing, doubled)
