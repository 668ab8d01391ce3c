"""DedupTask: whatever a stranger stores hides no row."""

from __future__ import annotations

from collections import Counter

import pytest

from pulsar_spark.client.writing import topic_writer
from pulsar_spark.errors import SendError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_section_head
from tests.client.clients import TOPIC, columns, numbered
from tests.client.writing import dedup_tasks
from tests.client.writing.dedup_tasks import NAME, open_writer, run, task_of
from tests.fake_broker import HANG
from tests.fake_topics import batch_section, split_section, values_of
from tests.writes import send_all

pytestmark = pytest.mark.usefixtures("quick_searches")
broker = dedup_tasks.broker


@pytest.mark.parametrize("last", [0, (3 << 32) + 5])
@pytest.mark.parametrize("batch", [0, 5])
def test_an_id_that_a_stranger_lets_a_broker_believe_hides_no_rows(broker, client, topic, batch, last):
    """A broker that restarts takes the last id of a name from the last entry that bears the name."""
    if batch:
        run(client, [b"before"], batch - 1)
    run(client, numbered(8), batch)
    broker.publish(TOPIC, *[batch_section([b"x"], producer_name=NAME, sequence_id=last)] * 100)
    topic.stored_ids[NAME] = min(last, (batch << 32) + 5)
    run(client, numbered(12), batch)
    own = [value for value in topic.values if value not in (b"x", b"before")]
    assert own == numbered(12)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("values", [numbered(10), [b"x"] * 10, numbered(20), numbered(3)])
@pytest.mark.parametrize("number", [1, (1 << 32) + 7, (1 << 63) - 1 - (7 << 32)])
def test_what_a_stranger_stores_under_the_name_hides_no_row(
    broker, client, topic, strict, values, number, caplog
):
    """He knows the rows, the name and the ids of the next micro-batch."""
    run(client, [b"before"], 5)
    number += 7 << 32
    broker.publish(TOPIC, batch_section(values, producer_name=NAME, sequence_id=number))
    topic.stored_ids[NAME] = number
    for _ in range(2):
        task, _ = run(client, numbered(10), 6, strict=strict)
        assert task.told == 0
    assert Counter(topic.values) == Counter([b"before", *values, *numbered(10)])
    assert "may be duplicated" not in caplog.text


def test_without_ids_left_all_runs_use_the_same_other_name(broker, client, topic, caplog, monkeypatch):
    monkeypatch.setattr(topic_writer, "_REOPEN_INTERVAL", HANG)  # it opens no producer before the other run
    run(client, [b"before"], 5)
    topic.stored_ids[NAME] = (1 << 63) - 1
    first = task_of(client, 6)
    with open_writer(client, first) as writer:
        send_all(writer, columns(numbered(4)))
        broker.close_all(TOPIC)
        run(client, numbered(8), 6)
        with pytest.raises(SendError, match="somebody else"):
            send_all(writer, columns(numbered(4, 4)))
    assert topic.values == [b"before", *numbered(8)]
    assert "somebody else has used the producer name" in caplog.text


CLAIMS = [
    {},
    {"sequence_id": 1 << 62},
    {"num_messages_in_batch": 1 << 20},
    {"producer_name": b"stranger"},
    {"partition_key": b"other"},
    {"deliver_at_time": 1},
    {"event_time": 1},
    {"compression": pb.LZ4},
]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("since", ["nothing", "more rows", "more rows under another name"])
def test_a_copy_of_the_first_entry_hides_no_row(broker, client, topic, claim, batching, since):
    """Whatever it claims, also after somebody has used up the ids of the task's first name."""
    stored = 4 if batching else 1
    run(client, numbered(stored), batching=batching)
    metadata, payload = split_section(topic.entries[0].section)
    if since != "nothing":
        if since == "more rows under another name":
            topic.stored_ids[NAME] = (1 << 63) - 1
        stored = 8
        run(client, numbered(stored))
    for name, value in claim.items():
        setattr(metadata, name, value)
    broker.publish(TOPIC, encode_section_head(metadata.SerializeToString(), payload) + payload)
    count = len(topic.entries)
    run(client, numbered(12))
    added = [value for entry in topic.entries[count:] for value in values_of(*split_section(entry.section))]
    assert added == numbered(12 - stored, stored)


def test_a_chunk_that_claims_to_be_a_message_hides_no_row(broker, client, topic):
    values = [bytes([number]) * 900 for number in range(2)]
    options = {"batching": False, "chunking": True, "chunk_max_message_size": 300}
    run(client, values[:1], **options)
    chunks = len(topic.entries)
    assert chunks > 2
    metadata, payload = split_section(topic.entries[-1].section)
    for name in ("uuid", "chunk_id", "num_chunks_from_msg", "total_chunk_msg_size"):
        metadata.ClearField(name)
    broker.publish(TOPIC, encode_section_head(metadata.SerializeToString(), payload) + payload)
    run(client, values, **options)
    assert len(topic.entries) == 2 * chunks + 1
