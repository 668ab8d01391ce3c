"""A micro-batch is written and Spark does not note it; then its rows come from other tasks."""

import shutil
from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from integration.helpers.replays import STRICT, Replays, no_duplicates_told, written
from integration.helpers.users_code import notes_of

ROWS = 2000
Change = Callable[[DataFrame], DataFrame]


def in_tasks(count, used=None):
    """Give the rows to so many tasks; with ``used`` only to some of them, which Spark's hashes choose."""

    def change(rows):
        if used is None:
            return rows.repartition(count)
        return rows.repartition(count, f.substring_index("value", ".", 1).cast("int") % used)

    return change


def crash(folder):
    """Leave the checkpoint as a driver does that is killed when micro-batch 0 is written."""
    shutil.rmtree(folder / "checkpoint" / "commits")
    for file in (folder / "checkpoint" / "offsets").iterdir():
        if file.name not in ("0", ".0.crc"):
            file.unlink()


# Tasks of the source and a change, of the first run and of the second one.
MOVES = {
    "minPartitions 1 to 2": ((1, None), (2, None)),
    "minPartitions 2 to 1": ((2, None), (1, None)),
    "repartition 10 to 4": ((1, in_tasks(10)), (1, in_tasks(4))),
}
MANY = pytest.param((1, in_tasks(200, 7)), (1, None), marks=pytest.mark.long, id="200 sparse tasks to 1")


@pytest.mark.parametrize(
    ("first", "second"), [*(pytest.param(*move, id=name) for name, move in MOVES.items()), MANY]
)
def test_rows_that_move_are_refused_or_told(
    pulsar_in_spark, admin, peer, once_topic, tmp_path, first, second
):
    """Never silently: a strict query fails before it sends a stored row, others say how many."""
    before, after = (
        Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, tasks=tasks)
        for tasks, _ in (first, second)
    )
    before.run(None, first[1], **STRICT)
    crash(tmp_path)
    after.fails(r"\[PULSAR_DUPLICATES\].*another task has stored equal rows", None, second[1], **STRICT)
    assert Counter(written(peer, once_topic)) == Counter(range(ROWS))
    notes = notes_of(once_topic)
    try:
        after.run(None, second[1], onBatchWritten="integration.helpers.users_code.note_duplicates")
        doubled = Counter(written(peer, once_topic)) - Counter(range(ROWS))
        assert doubled
        assert max(map(int, notes.read_text().split())) == doubled.total()
    finally:
        notes.unlink(missing_ok=True)


def test_a_replay_by_many_tasks_reads_little(pulsar_in_spark, spark, admin, peer, plain_once_topic, tmp_path):
    """64 tasks write to one topic partition, several batches each. Tasks of a process share what they see."""
    admin.create_topic(plain_once_topic)
    query = Replays(pulsar_in_spark, admin.url, plain_once_topic, tmp_path, rows=64_000, tasks=64, size=300)
    options = {**STRICT, "pulsar.producer.batchingMaxMessages": "100"}
    with no_duplicates_told(plain_once_topic) as told:
        query.run(**told, **options)
        stored = admin.stats(plain_once_topic)
        crash(tmp_path)
        query.run(**told, **options)
    stats = admin.stats(plain_once_topic)
    assert stats["msgInCounter"] == 64_000
    read = stats["bytesOutCounter"] - stored["bytesOutCounter"]
    # Once by the tasks, and some of it by each worker process that looks for them. Without sharing each of
    # the 64 tasks reads all.
    assert read <= 3 * stored["bytesInCounter"], read / stored["bytesInCounter"]


def test_a_checkpoint_that_was_set_back_is_told(pulsar_in_spark, admin, peer, once_topic, tmp_path):
    """Batch ids that Spark uses again may have other rows."""
    query = Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, batches=3)
    query.run()
    crash(tmp_path)
    query.fails(r"\[PULSAR_DUPLICATES\].*micro-batch 0 is written after a later one", **STRICT)
    assert Counter(written(peer, once_topic)) == Counter(range(3 * ROWS))
