"""A strict DedupTask: what its error says is true."""

from contextlib import closing

import pytest

from pulsar_spark.client import DedupTask, TopicWriter
from pulsar_spark.errors import DuplicatesError
from tests.client.clients import TOPIC, client_of, columns, numbered, producing
from tests.client.writing.told import new_origin
from tests.fake_broker import FakeBroker


def test_no_row_is_sent_before_all_stored_ones_are_found():
    """Whatever portions they come in."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)

        def run(values, size, *, strict):
            task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=False, strict=strict)
            options = producing(batching_max_messages=size, batching_max_publish_delay=1000.0)
            with closing(task), TopicWriter(client, TOPIC, options, dedup=task) as writer:
                for first in range(0, len(values), 5):
                    writer.send(columns(values[first : first + 5]))
                writer.flush()
                task.finish()

        run(numbered(10), 10, strict=False)
        with pytest.raises(DuplicatesError, match=r"has others\. None of these rows is sent"):
            run(numbered(10, 100), 5, strict=True)
        stored = broker.topics[str(TOPIC)].values
    assert stored == numbered(10)
