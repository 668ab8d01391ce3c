"""Copies of a task's entries: found by producer name and sequence ids, which replication keeps."""

import pytest

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.copy_search import CopySearch, copied_from
from pulsar_spark.protocol.replay.run_search import RunToFind
from pulsar_spark.protocol.replay.task_ids import TaskIds, first_sequence_id
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.entry.origin import Origin

NAME, BATCH = "spark-q-0", 6
T = TopicName.parse("t")
RUN = RunToFind(Origin(BATCH, 0, 0, run=1), b"secret", NAME, -1)
IDS = TaskIds(b"secret", NAME, str(T))
FIRST = IDS.first(BATCH)


def entries(*given):
    """Entries of (name, first sequence id, messages, cluster)."""
    made = []
    for number, (name, first, messages, cluster) in enumerate(given):
        metadata = pb.MessageMetadata(producer_name=name.encode(), sequence_id=first, publish_time=0)
        if messages:
            metadata.num_messages_in_batch = messages
        if cluster:
            metadata.replicated_from = cluster.encode()
        made.append(Entry(7, number, metadata, b"", None))
    return Entries.of(made)


def searched(*given):
    search = CopySearch(RUN, T)
    assert not search.take(entries(*given))  # no entry restarts the timeout
    return search


def test_copies_are_those_under_the_name_with_ids_of_the_micro_batch():
    given = [
        ("other", FIRST, 0, "a"),
        (NAME, FIRST, 3, "a"),
        (NAME, FIRST + 3, 0, None),  # stored here
        ("spark-q-1", FIRST, 0, "a"),
        (NAME, FIRST + 4, 2, "c"),
        (NAME, IDS.own(BATCH).stop, 0, "a"),  # not the query's own id
    ]
    search = searched(*given)
    assert (search.begin, search.end, search.copied_from) == (MessageId(7, 1), MessageId(7, 4), {"a", "c"})
    assert search.wanted(entries(*given)).tolist() == [False, True, False, False, True, False]
    assert not search.is_passed


@pytest.mark.parametrize("cluster", [None, "a"])
@pytest.mark.parametrize(
    ("name", "last", "is_passed"),
    [
        (NAME, first_sequence_id(BATCH) - 1, True),
        ("spark-q-12", first_sequence_id(BATCH) - 1, True),
        (NAME, first_sequence_id(BATCH), False),
        ("spark-qq-0", 5, False),
        ("other", 5, False),
    ],
)
def test_an_earlier_entry_of_any_task_of_the_query_ends_the_search(cluster, name, last, is_passed):
    search = searched((name, last - 1, 2, cluster))
    assert (search.is_passed, search.begin) == (is_passed, None)


def test_a_search_goes_on_until_an_earlier_entry_was_seen():
    search = searched((NAME, first_sequence_id(BATCH) - 2, 2, None))
    search.take(entries((NAME, FIRST, 3, "a")))
    search.take(entries(("other", FIRST, 3, "c")))
    assert search.is_passed
    assert search.copied_from == {"a"}
    assert search.begin == search.end == MessageId(7, 0)


@pytest.mark.parametrize(
    ("name", "first", "messages", "cluster", "found"),
    [
        (NAME, FIRST, 3, "a", {"a"}),
        (NAME, FIRST, 0, None, set()),
        ("other", FIRST, 0, "a", set()),
        (NAME, IDS.own(BATCH).stop - 1, 0, "a", {"a"}),
        (NAME, IDS.own(BATCH).stop, 0, "a", set()),
        (NAME, IDS.own(BATCH).stop - 1, 2, "a", set()),  # its last id counts
        (NAME, FIRST - 1, 0, "a", set()),
        # Each task has its own first id.
        ("spark-q-1", TaskIds(b"secret", "spark-q-1", str(T)).first(BATCH), 0, "a", {"a"}),
        ("spark-q-1", TaskIds(b"secret", "spark-q-1", "u").own(BATCH).start - 1, 0, "a", set()),
        ("spark-\xff-0", FIRST, 0, "a", set()),
    ],
)
def test_copies_by_any_task_of_the_query_name_their_cluster(name, first, messages, cluster, found):
    assert copied_from(entries(("other", 5, 0, "c"), (name, first, messages, cluster)), RUN, T) == found


def test_the_first_id_of_a_micro_batch_is_its_own():
    assert searched((NAME, FIRST, 0, "a")).begin == MessageId(7, 0)
    assert searched((NAME, FIRST - 1, 0, "a")).begin is None


def test_names_that_are_no_text_are_read_somehow():
    metadata = entries((NAME, FIRST, 0, "a")).one(0).metadata
    metadata.replicated_from = b"\xff"
    assert copied_from(Entries.of([Entry(7, 0, metadata, b"", None)]), RUN, T) == {"\ufffd"}
    metadata.producer_name = b"spark-q-\xff"
    assert copied_from(Entries.of([Entry(7, 0, metadata, b"", None)]), RUN, T) == set()
