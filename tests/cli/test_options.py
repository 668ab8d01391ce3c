"""The command ``options``: one, those with a part of a name, all of them, and names that are mistyped."""

import pytest

from pulsar_spark.cli import main
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE


def heads(text):
    return [line.partition(" ")[0] for line in text.splitlines() if not line.startswith(" ")]


def test_one_option(capsys):
    assert main(["options", "startingoffsets"]) == 0
    first, *meaning = capsys.readouterr().out.splitlines()
    assert first == "startingOffsets (source; words, JSON; no default)"
    assert "Where a query without a checkpoint starts" in " ".join(meaning)


def test_a_part_of_a_name(capsys):
    assert main(["options", "PerTrigger"]) == 0
    found = heads(capsys.readouterr().out)
    assert {"maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger"} <= set(found)
    assert all("pertrigger" in name.lower() for name in found)


def test_all_options(capsys):
    assert main(["options"]) == 0
    assert heads(capsys.readouterr().out) == [option.name for option in (*CONNECTION, *SOURCE, *SINK)]


def test_a_mistyped_name(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["options", "startingOfsets"])
    assert ended.value.code == 2
    assert "Did you mean startingOffsets?" in capsys.readouterr().err
