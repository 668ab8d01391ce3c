"""Subscriptions that checkpoints name, read from offsets as Spark writes them."""

import json
import uuid

import pytest

from pulsar_spark.cli.checkpoints import named_in

METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1763719000000, "conf": {}}


def offset(name):
    return {"subscription": name, "topics": {"persistent://public/default/t": {"0": "12:99", "1": "13:4"}}}


def write_batch(checkpoint, number, *offsets):
    """One file of Spark's offset log: its version, the batch's settings, and a line for each source."""
    lines = ["v1", json.dumps(METADATA)]
    lines += ["-" if each is None else json.dumps(each) for each in offsets]
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))


@pytest.fixture
def ids():
    return [str(uuid.uuid4()) for _ in range(4)]


def test_all_sources_of_all_batches_below_a_folder(tmp_path, ids):
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    write_batch(tmp_path / "a", 1, offset(f"spark-pulsar-{ids[0]}"))
    write_batch(tmp_path / "deep" / "er" / "b", 7, None, {"logOffset": 3}, offset(f"own prefix é-{ids[1]}"))
    write_batch(tmp_path / "deep" / "er" / "b", 8, offset(f"x-{ids[2]}"), offset(f"y-{ids[1]}"))
    assert named_in([tmp_path]) == {
        ids[0]: tmp_path / "a",
        ids[1]: tmp_path / "deep" / "er" / "b",
        ids[2]: tmp_path / "deep" / "er" / "b",
    }


def test_a_checkpoint_itself_and_several_folders(tmp_path, ids):
    for name, each in zip("abc", ids, strict=False):
        write_batch(tmp_path / name, 0, offset(f"spark-pulsar-{each}"))
    assert set(named_in([tmp_path / "a", tmp_path / "c"])) == {ids[0], ids[2]}


def test_what_is_not_offsets_does_not_count(tmp_path, ids):
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    (tmp_path / "a" / "metadata").write_text(json.dumps({"id": ids[1]}))
    (tmp_path / "a" / "commits").mkdir()
    (tmp_path / "a" / "commits" / "0").write_text(ids[2])
    (tmp_path / "a" / "offsets" / f".1.{ids[3]}.tmp").write_text(json.dumps(offset(f"spark-pulsar-{ids[3]}")))
    (tmp_path / "a" / "offsets" / ".0.crc").write_bytes(b"crc\0\xff")
    assert set(named_in([tmp_path])) == {ids[0]}


def test_an_offset_that_is_quoted_once_more_counts(tmp_path, ids):
    write_batch(tmp_path / "a", 0, {"offset": json.dumps(offset(f"spark-pulsar-{ids[0]}"))})
    assert set(named_in([tmp_path])) == {ids[0]}


def test_links_are_followed_once(tmp_path, ids):
    write_batch(tmp_path / "elsewhere" / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(folder)
    assert named_in([folder]) == {ids[0]: folder / "link" / "a"}


def test_a_folder_without_checkpoints_is_an_error(tmp_path, ids):
    """It may be where nothing is mounted; another folder that has some does not excuse it."""
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        named_in([tmp_path / "a", tmp_path / "empty"])


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*/nowhere\. Check its name") as caught:
        named_in([tmp_path / "nowhere"])
    assert "Errno" not in str(caught.value)


def test_an_offset_that_cannot_be_read_is_an_error(tmp_path, ids):
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    (tmp_path / "a" / "offsets" / "1").mkdir()
    with pytest.raises(IsADirectoryError):
        named_in([tmp_path])
