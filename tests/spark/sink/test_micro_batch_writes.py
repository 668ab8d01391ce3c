"""The number of a write within its micro-batch: the same when it is run again, and no other write has it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, product

import pytest

from pulsar_spark.errors import SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.micro_batch import (
    MicroBatch,
    count_write,
    has_written_before,
    read_write_numbers,
    write_number,
)

T, U = TopicName.parse("t"), TopicName.parse("u")
RUN, OTHER = (str(uuid.UUID(int=number)) for number in (1, 2))
BATCH = MicroBatch("query", RUN, 7, 3, is_retried=False)
NEXT = MicroBatch("query", RUN, 8, 3, is_retried=False)
ANOTHER_RUN = MicroBatch("query", OTHER, 7, 3, is_retried=False)
ANOTHER_QUERY = MicroBatch("other query", RUN, 7, 3, is_retried=False)
OWN_GROUP = MicroBatch("query", "a job group", 7, 3, is_retried=False)


def number(batch: MicroBatch = BATCH, topic: TopicName | None = T) -> int:
    """The number that a task has, as the driver counts now."""
    return write_number(read_write_numbers(), batch, topic)


def count(batch: MicroBatch = BATCH, topic: TopicName | None = T) -> None:
    count_write(batch.query, batch.run, batch.number, topic)


@pytest.mark.usefixtures("folder")
def test_each_write_to_a_topic_has_the_next_number():
    for expected in range(4):
        assert number() == expected
        assert number() == expected, "a write that fails is not counted, so it has its number again"
        count()


@pytest.mark.usefixtures("folder")
def test_topics_are_counted_apart():
    """Else a write that a run leaves out, because it has no rows, would change the numbers of the others."""
    count(topic=T)
    count(topic=T)
    assert [number(topic=topic) for topic in (T, U)] == [2, 0]
    count(topic=U)
    assert [number(topic=topic) for topic in (T, U)] == [2, 1]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "writes", list(product([T, U, None, T.of_partition(0), T.of_partition(1)], repeat=3))
)
def test_no_two_writes_to_a_topic_partition_have_the_same_number(writes):
    """Rows may name any topic. Else equal rows of the later write would be left out."""
    seen = []
    for topic in writes:
        seen.append((topic, number(topic=topic)))
        count(topic=topic)
    for (one, first), (other, second) in combinations(seen, 2):
        is_any = one is None or other is None
        if is_any or one == other or (one.base == other.base and other.base in (one, other)):
            assert first < second, seen


@pytest.mark.usefixtures("folder")
def test_each_micro_batch_begins_at_0():
    count(BATCH)
    count(BATCH)
    assert number(NEXT) == 0
    count(NEXT)
    assert number(NEXT) == 1


@pytest.mark.usefixtures("folder")
def test_a_micro_batch_that_is_run_again_has_the_numbers_of_the_first_run():
    """The same process may run the query again, and others beside it."""
    before = []
    for _ in range(2):
        before.append(number(BATCH))
        count(BATCH)
    again = []
    for _ in range(2):
        again.append(number(ANOTHER_RUN))
        count(ANOTHER_RUN)
    assert again == before == [0, 1]


@pytest.mark.usefixtures("folder")
def test_queries_are_counted_apart():
    count(BATCH)
    assert number(ANOTHER_QUERY) == 0


@pytest.mark.usefixtures("folder")
def test_writes_that_threads_of_a_function_commit_at_the_same_time_are_all_counted():
    with ThreadPoolExecutor(2) as pool:
        for counted in [pool.submit(count, BATCH, topic) for topic in [T, U] * 300]:
            counted.result()
    assert [number(BATCH, topic) for topic in (T, U)] == [300, 300]


@pytest.mark.usefixtures("folder")
def test_a_job_group_of_a_functions_own_does_not_begin_anew():
    """Rows that two writes have in common would be left out."""
    for expected, batch in enumerate((BATCH, OWN_GROUP, OWN_GROUP, BATCH)):
        assert number(batch) == expected
        count(batch)


@pytest.mark.usefixtures("folder")
def test_a_later_micro_batch_of_a_run_is_known():
    """Each of its writes, also after others of the same micro-batch."""

    def is_known(batch: MicroBatch) -> bool:
        return has_written_before(read_write_numbers(), batch)

    assert not is_known(BATCH)
    for _ in range(2):
        count(BATCH)
        assert not is_known(BATCH), "the first micro-batch of a run may be a replay"
        assert is_known(NEXT)
    for _ in range(2):
        count(NEXT)
        assert is_known(NEXT)
        assert not is_known(replace(NEXT, run=OTHER))
        assert not is_known(replace(NEXT, query="other query"))
    count(replace(NEXT, run=OTHER))
    assert not is_known(replace(NEXT, run=OTHER))


@pytest.mark.usefixtures("folder")
def test_a_job_group_of_a_functions_own_tells_nothing_of_a_run():
    """A later run may have the same one."""
    count(OWN_GROUP)
    assert not has_written_before(read_write_numbers(), replace(OWN_GROUP, number=8))


def test_little_is_kept_however_long_a_query_runs(folder):
    for batch in range(100):
        count_write("query", RUN, batch, T)
    (file,) = [path for path in folder.rglob("*") if path.is_file()]
    assert file.stat().st_size < 100


@pytest.mark.usefixtures("no_spark")
def test_where_spark_does_not_run_nothing_was_counted():
    assert number() == 0


@pytest.mark.usefixtures("no_spark")
def test_a_write_that_cannot_be_counted_is_an_error_without_spark():
    """The next write would be taken for this one, and rows that both have would be left out."""
    with pytest.raises(SendError, match="the rows are written, but the write could not be counted") as caught:
        count()
    assert caught.value.topic == str(T)


def test_a_write_that_cannot_be_counted_is_an_error_on_a_full_disk(folder):
    count()
    (file,) = [path for path in folder.rglob("*") if path.is_file()]
    file.parent.rename(folder / "elsewhere")
    file.parent.touch()
    with pytest.raises(SendError, match=r"could not be counted: .*"):
        count()


def test_counts_that_cannot_be_read_are_an_error(folder):
    """Without them a write would be taken for an earlier one."""
    count()
    (file,) = [path for path in folder.rglob("*") if path.is_file()]
    file.unlink()
    file.mkdir()
    with pytest.raises(SendError, match=r"the writes of the micro-batch are not known: .*"):
        read_write_numbers()
