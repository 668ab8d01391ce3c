"""``explain`` and ``options``: one in any spelling, all of them, and those that are mistyped."""

import pytest

from pulsar_spark.cli import main
from pulsar_spark.cli.explain import explanations
from pulsar_spark.errors import AuthError
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE
from tests.test_errors import CLASSES


@pytest.mark.parametrize("given", ["PULSAR_AUTH", "pulsar_auth", "AUTH", "auth", "[PULSAR_AUTH]"])
def test_a_code(capsys, given):
    assert main(["explain", given]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "PULSAR_AUTH"
    assert "permission is missing" in said
    assert AuthError.usual_advice in " ".join(said.split())
    assert "retried" not in said
    assert all(len(line) <= 100 for line in said.splitlines())


def test_a_code_that_is_tried_again(capsys):
    assert main(["explain", "BUSY"]) == 0
    assert "    The operation is retried until its timeout." in capsys.readouterr().out.splitlines()


def test_all_codes(capsys):
    assert main(["explain"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("PULSAR_")]
    assert heads == [each.code for each in explanations()]


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("PULSAR_ATUH", "Did you mean PULSAR_AUTH?"),
        ("PULSAR_DATALOSS", "Did you mean PULSAR_DATA_LOSS?"),
        ("OutOfMemory", "Leave the code out to print all of them"),
        ("", "Leave the code out"),
    ],
)
def test_a_code_that_does_not_exist_is_wrong_usage(capsys, given, advice):
    with pytest.raises(SystemExit) as ended:
        main(["explain", given])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no error code" in err
    assert advice in err


def test_each_code_is_explained_in_the_order_of_the_tree():
    table = explanations()
    assert [(each.code, each.is_retriable) for each in table] == [
        (kind.code, kind.retriable) for kind in CLASSES
    ]
    for each in table:
        assert each.meaning.endswith("."), each
        assert each.advice.endswith("."), each
        assert "``" not in each.meaning, each


def heads(text):
    return [line.partition(" ")[0] for line in text.splitlines() if not line.startswith(" ")]


def test_one_option(capsys):
    assert main(["options", "startingoffsets"]) == 0
    first, *meaning = capsys.readouterr().out.splitlines()
    assert first == "startingOffsets (source; words, JSON; no default)"
    assert "Where a query without a checkpoint starts" in " ".join(meaning)


def test_a_part_of_an_option(capsys):
    assert main(["options", "PerTrigger"]) == 0
    found = heads(capsys.readouterr().out)
    assert {"maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger"} <= set(found)
    assert all("pertrigger" in name.lower() for name in found)


def test_all_options(capsys):
    assert main(["options"]) == 0
    assert heads(capsys.readouterr().out) == [option.name for option in (*CONNECTION, *SOURCE, *SINK)]


def test_a_mistyped_option(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["options", "startingOfsets"])
    assert ended.value.code == 2
    assert "Did you mean startingOffsets?" in capsys.readouterr().err
