"""Deduplicating tasks that write to the segments of a scalable topic on the fake broker."""

from contextlib import closing

import pytest

from pulsar_spark.client import DedupTask
from tests.client.writing.dedup_tasks import SECRET
from tests.client.writing.segments import keyed, open_segments
from tests.client.writing.told import new_origin, told
from tests.fake_broker import FakeBroker, pass_on
from tests.writes import send_all

BATCH = 5


@pytest.fixture
def broker():
    with FakeBroker(has_segments=True, deduplicates=True) as broker:
        yield broker


def task_of(client, batch=BATCH, *, task=0, **given):
    given = {"required": False, **given}
    return DedupTask(client, f"query-{task}", new_origin(batch, task, 0), SECRET, **given)


def run(client, first, count, batch=BATCH, *, sends=1, task=None, **options):
    """One whole run of a task; gives the number of messages that may be duplicated."""
    task, options = task or task_of(client, batch), {"batching_max_messages": 4, **options}
    with closing(task), open_segments(client, dedup=task, **options) as writer:
        for number in range(sends):
            at, end = (count * each // sends for each in (number, number + 1))
            writer.send(keyed(first + at, end - at))
        writer.flush()
        task.finish()
        return told((task, writer.sent))


def begin(client, first, count, batch=BATCH, **options):
    """A run that ends after its rows are stored; without its report."""
    task = task_of(client, batch)
    with (
        closing(task),
        open_segments(client, dedup=task, **{"batching_max_messages": 4, **options}) as writer,
    ):
        send_all(writer, keyed(first, count))


def subscribing_to(names, action):
    """An action for SUBSCRIBE: `action` for these topics, and the usual answer for all others."""

    def act(connection, frame):
        (action if frame.command.subscribe.topic in names else pass_on)(connection, frame)

    return act
