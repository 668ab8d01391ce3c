"""What the mutation tool is told: which code it changes, and which tests that is for."""

import pytest

from integration import mutation
from integration.mutation import DECISIONS, main, settings


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("pulsar_spark/protocol", "tests/protocol"),
        ("pulsar_spark/protocol/reading/permits.py", "tests/protocol/reading"),
        ("pulsar_spark/ids.py", "tests"),
    ],
)
def test_tests_mirror_the_package(path, tests):
    assert mutation.tests_of(path) == tests


def test_all_that_decides_is_changed_and_tested():
    found = settings(DECISIONS)
    assert found["only_mutate"].split() == [f"{path}/*" for path in DECISIONS]
    assert found["pytest_add_cli_args_test_selection"].split() == [
        mutation.tests_of(path) for path in DECISIONS
    ]


def test_tests_may_be_chosen():
    found = settings(["pulsar_spark/protocol/lookup.py"], ["tests/protocol/test_lookup.py"])
    assert found["pytest_add_cli_args_test_selection"].split() == ["tests/protocol/test_lookup.py"]


@pytest.mark.parametrize("path", ["tests", "pulsar_spark/nowhere", "pulsar_spark/nowhere.py"])
def test_what_is_not_in_the_package(path, capsys):
    assert main([path]) == 2
    assert "is not a file or a folder of pulsar_spark" in capsys.readouterr().err
