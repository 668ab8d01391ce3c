"""DedupTask: rows that a micro-batch begins with, in chunks; and stored rows that cannot be decoded."""

import time
from contextlib import closing

import pytest

from pulsar_spark.client import DedupTask, TopicWriter
from pulsar_spark.errors import DuplicatesError
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, columns, numbered, producing
from tests.client.writing.told import new_origin, told
from tests.fake_broker import FakeBroker, cut, lose_answer, pass_on
from tests.fake_clients import Type
from tests.fake_topics import section_of

LARGE = b"large" * 2000  # three chunks
IN_CHUNKS = {"batching": False, "chunking": True}


pytestmark = pytest.mark.usefixtures("quick_searches")


@pytest.fixture
def broker():
    with FakeBroker(deduplicates=True, max_message_size=5000) as broker:
        broker.create(TOPIC)
        yield broker


def run(client, values, *, strict=True, **options):
    """A run of the task; gives how many messages may be duplicated."""
    task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=False, strict=strict)
    with closing(task), TopicWriter(client, TOPIC, producing(**options), dedup=task) as writer:
        writer.send(columns(values))
        writer.flush()
        task.finish()
        return told((task, writer.sent))


def own(topic):
    return [entry.id for entry in topic.entries if entry.metadata.producer_name != b"else"]


@pytest.mark.parametrize("rows", [[LARGE], [LARGE, b"more"]])
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("action", [cut, lose_answer])
def test_a_first_row_in_chunks_is_found_if_its_connection_was_lost(broker, client, topic, rows, at, action):
    """Its chunks are sent again; if its last one was stored before, only the first attempt is whole."""
    broker.script(Type.SEND, [pass_on] * at + [action])
    run(client, rows, **IN_CHUNKS)
    stored = own(topic)
    assert run(client, rows, **IN_CHUNKS) == 0
    assert own(topic) == stored


@pytest.mark.parametrize("rows", [[LARGE], [LARGE, b"more"]])
def test_a_first_row_in_chunks_is_found_whatever_others_write_between_them(broker, client, topic, rows):
    """Anybody can make it look as if the chunks had been published hours after each other."""
    now, hour = int(time.time() * 1000), 3_600_000

    def with_others(connection, frame):
        for _ in range(150):
            entries = len(topic.entries)
            topic.append(section_of(b"", producer_name="else", publish_time=now + entries // 150 * hour))
        pass_on(connection, frame)

    broker.script(Type.SEND, [with_others] * 3)
    run(client, rows, **IN_CHUNKS)
    stored = own(topic)
    assert run(client, rows, **IN_CHUNKS) == 0
    assert own(topic) == stored


def test_stored_rows_that_cannot_be_decoded_are_told_or_refused(broker, client, topic):
    """Readers, and so this task, do not take so much of so few bytes."""
    rows = [b"one", bytes(50 << 20), b"two"]
    run(client, rows, compression=pb.ZSTD, batching_max_messages=1)
    stored = own(topic)
    with pytest.raises(DuplicatesError, match="some of them cannot be decoded"):
        run(client, rows, compression=pb.ZSTD)
    assert own(topic) == stored
    assert run(client, rows, compression=pb.ZSTD, strict=False) == 1


def test_nothing_is_read_any_more_after_close(broker, client):
    """The first run has stored much more than is read at a time."""
    run(client, numbered(30_000), batching_max_messages=100)
    task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=False)
    with closing(task), TopicWriter(client, TOPIC, producing(), dedup=task) as writer:
        writer.send(columns(numbered(10)))
        assert broker.open_consumers
    broker.wait_for(lambda: not broker.open_consumers)
