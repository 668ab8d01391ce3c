"""The matrix of versions: a corner that fails, is killed or has no Python is a failure."""

import sys

import pytest

from integration.matrix import (
    FULL,
    Versions,
    exit_code,
    find_python,
    main,
    tools_of_tests,
    with_spark,
    without_spark,
)

# No machine has it with what this project needs.
NO_PYTHON = Versions("3.0")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0], 0), ([0, 0], 0), ([1, 0], 1), ([0, 5], 1), ([0, -9], 1), ([-9, -9], 1), ([1, -1], 1)],
)
def test_each_code_but_0_is_a_failure(codes, expected):
    assert exit_code(codes) == expected


def test_a_python_that_is_missing_is_a_failure(tmp_path, capsys):
    assert without_spark(NO_PYTHON, tmp_path) != 0
    assert with_spark(NO_PYTHON, tmp_path, tmp_path, "pulsar://nowhere", ["tests"]) != 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("no python3.0" in line and "integration test tests" in line for line in lines)


def test_pythons_are_found():
    assert find_python("{}.{}".format(*sys.version_info[:2])) == sys.executable
    assert find_python("3.0") is None


def test_the_oldest_spark_is_tried_with_the_oldest_of_all():
    assert FULL[0].python == "3.10"
    assert FULL[0].libraries[0] == "pyspark[sql]==4.2.*"


def test_the_tools_are_those_of_the_dev_extra():
    names = {tool.partition(" ")[0] for tool in tools_of_tests()}
    assert {"hypothesis", "openlineage-python", "pytest", "pytest-xdist", "pyyaml"} <= names
    assert not {"mypy", "ruff", "pulsar-client"} & names


@pytest.mark.parametrize("arguments", [[], ["all"], ["full", "3.10"]])
def test_what_is_no_command(arguments):
    assert main(arguments) == 2
