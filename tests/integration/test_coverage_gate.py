"""The gate of coverage: a place below its limit fails, and one that is gone."""

import json
import re

import pytest

from integration.coverage_gate import LIMITS, Coverage, check, measure, table
from integration.helpers.local_spark import ROOT


def report(tmp_path, files):
    """A report as coverage writes it, of {path: (covered, statements)}."""
    summaries = {
        path: {"summary": {"covered_lines": covered, "num_statements": statements}}
        for path, (covered, statements) in files.items()
    }
    file = tmp_path / "coverage.json"
    file.write_text(json.dumps({"files": summaries}))
    return file


def of_all_limits(percent):
    """Each place with a limit has one file of 100 statements."""
    places = [place if place.endswith(".py") else f"{place}/some.py" for place in LIMITS]
    return dict.fromkeys(places, (percent, 100))


@pytest.mark.parametrize(
    ("place", "files", "percent", "passes"),
    [
        ("a/b", {"a/b/c.py": (9, 10)}, 90.0, True),
        ("a/b", {"a/b/c.py": (899, 1000)}, 89.9, False),
        ("a/b", {"a/b/c.py": (10, 10), "a/b/d/e.py": (0, 10)}, 50.0, False),
        ("a/b", {"a/b/c.py": (10, 10), "a/bc/d.py": (0, 10), "a/b.py": (0, 10)}, 100.0, True),
        ("a/b.py", {"a/b.py": (7, 10), "a/c.py": (10, 10)}, 70.0, False),
        ("a/b", {"a/c.py": (10, 10)}, 0.0, False),
        ("a/b", {"a/b/__init__.py": (0, 0)}, 0.0, False),
    ],
    ids=["at its limit", "below", "folders within", "names that begin alike", "a file", "gone", "empty"],
)
def test_a_place(place, files, percent, passes):
    (found,) = measure(files, {place: 90})
    assert (found.place, found.percent, found.passes) == (place, percent, passes)


def test_the_table_says_what_fails():
    lines = table([Coverage("a", 9, 10, 90), Coverage("b/c.py", 8, 10, 90), Coverage("d", 0, 0, 90)]).split(
        "\n"
    )
    assert [line.split() for line in lines[1:]] == [
        ["a", "90.0", "90"],
        ["b/c.py", "80.0", "90", "too", "low"],
        ["d", "0.0", "90", "not", "found"],
    ]


def test_the_exit_code(tmp_path, capsys):
    files = of_all_limits(90)
    assert check(report(tmp_path, files)) == 0
    assert "too low" not in capsys.readouterr().out
    assert check(report(tmp_path, files | {"pulsar_spark/wire/some.py": (89, 100)})) == 1
    assert re.search(r"pulsar_spark/wire +89\.0 +90  too low", capsys.readouterr().out)
    del files["pulsar_spark/ids.py"]
    assert check(report(tmp_path, files)) == 1


def test_every_place_with_a_limit_exists():
    assert [place for place in LIMITS if not (ROOT / place).exists()] == []
