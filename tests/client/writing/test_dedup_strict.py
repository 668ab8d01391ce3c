"""A strict DedupTask: what its error says is true."""

from contextlib import closing

import pytest

from pulsar_spark.client import DedupTask, Origin, TopicWriter
from pulsar_spark.errors import DuplicatesError
from tests.client.clients import TOPIC, client_of, columns, numbered, producing
from tests.fake_broker import FakeBroker


def test_rows_of_an_entry_that_began_earlier_may_have_been_sent():
    """The first five stored rows are in an entry of ten: until ten rows have come, they may come, too."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)

        def run(values, size, *, strict):
            task = DedupTask(client, "query-0", Origin(0, 0, 0), b"secret", required=False, strict=strict)
            options = producing(batching_max_messages=size, batching_max_publish_delay=1000.0)
            with closing(task), TopicWriter(client, TOPIC, options, dedup=task) as writer:
                for first in range(0, len(values), 5):
                    writer.send(columns(values[first : first + 5]))
                writer.flush()

        run(numbered(10), 10, strict=False)
        with pytest.raises(DuplicatesError, match=r"has others\. No more rows are sent"):
            run(numbered(10, 100), 5, strict=True)
        stored = broker.topics[str(TOPIC)].values
    assert stored == [*numbered(10), *numbered(5, 100)]
