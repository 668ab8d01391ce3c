"""The stages of reading and writing: each is measured, on rows that come out as they went in."""

import pytest

from integration.bench import stages
from integration.bench.shapes import SHAPES


@pytest.mark.parametrize("name", ["batched", "value", "lz4"])
def test_every_stage_takes_time(name, monkeypatch):
    monkeypatch.setattr(stages, "_MEBIBYTES", 1)
    monkeypatch.setattr(stages, "_TIMES", 2)
    read, written = stages.reading(SHAPES[name]), stages.writing(SHAPES[name])
    assert [stage.name for stage in read][:3] == ["receive", "cut frames", "checksum and metadata"]
    assert ("compress" in [stage.name for stage in written]) is (name == "lz4")
    assert all(stage.cpu > 0 for stage in [*read, *written[:-2], written[-1]])
