"""A model of replays whose rows move between tasks, for random tests against the fake broker.

A topic gets the rows of one micro-batch from several runs of a query. Each run gives the rows to 2 to 8 tasks
in a way of its own, or as the run before; the tasks write at the same time. Some have other values for some
rows. Each run but the last one dies: after some entries of its tasks, or when all is written and nothing is
reported. Then one run is left alone. No row may be missing. No row may be there twice unless the driver says
so, and a strict run must not send a row that is stored.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from pulsar_spark.client import DedupTask, Origin, ProducerOptions, TopicWriter
from pulsar_spark.errors import DuplicatesError
from pulsar_spark.ids import TopicName
from tests.client.clients import client_of, columns, producing
from tests.client.writing.told import Ended, told
from tests.fake_topics import section_of

SECRET = b"only the query knows this"
BATCH = 5
_NUMBERS = itertools.count()

# Row numbers by task; of those rows, the versions of their values.
Tasks = list[list[int]]


@dataclass
class Outcome:
    """What became of a topic.

    Attributes:
        missing: rows of the last run that are not there.
        doubled: how many rows there are beside those of the last run that have the number of one of them.
        told: how many may be duplicated, as the driver says.
        is_strict: whether the query is strict.
        is_refused: whether a task of the last run has refused to send rows.
        is_alike: whether all runs had the same rows in the same tasks.
        resent: rows that a strict run has sent though equal ones were stored.
        events: what happened, and how often.
    """

    missing: Counter[bytes]
    doubled: int
    told: int
    is_strict: bool
    is_refused: bool
    is_alike: bool
    resent: int
    events: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Raise AssertionError if a promise is not kept."""
        assert not self.resent, self
        if self.is_alike:
            assert (self.told, self.doubled) == (0, 0), self
        if self.is_refused:
            assert self.is_strict, self
            assert not self.is_alike, self
        else:
            assert not self.missing, self
            assert self.told >= self.doubled, self


class Moves:
    """The runs of a query on one topic.

    Args:
        broker: that deduplicates.
        seed: of all that is random.

    Attributes:
        counts: of rows.
    """

    counts: tuple[int, ...] = (1, 5, 40, 200)

    def __init__(self, broker: Any, seed: int) -> None:
        self._broker = broker
        self._chance = chance = random.Random(seed)
        self._topic = TopicName.parse(f"moves-{next(_NUMBERS)}")
        self._names = [self._topic]
        partitions = chance.choice([0, 0, 1, 2])
        broker.create(self._topic, partitions)
        if partitions:
            self._names = [self._topic.of_partition(number) for number in range(partitions)]
        self._is_strict = chance.random() < 0.4
        self._count = chance.choice(self.counts)
        self._versions = [0] * self._count
        self._changes = chance.random() < 0.3
        self._moves = chance.random() < 0.8
        self._is_alike = True
        self._tasks = self._distribution()
        self._resent = 0
        self.events: Counter[str] = Counter()

    def play(self) -> Outcome:
        """Let runs die, then run the query alone; give what is there at the end."""
        chance = self._chance
        if chance.random() < 0.5:
            self._run(BATCH - 1, [[number] for number in range(3)], last=True)
        for number in range(chance.choice([1, 1, 2, 3])):
            if number:
                self._go_on()
            self._run(BATCH, self._tasks, last=False)
            if chance.random() < 0.3:
                for _ in range(chance.choice([1, 20])):
                    self._broker.publish(chance.choice(self._names), section_of(b"else:0"))
        self._go_on()
        count = self._run(BATCH, self._tasks, last=True)
        there = Counter(value for value in self._values() if not value.startswith((b"else", b"before")))
        rows = Counter(self._value(number) for number in range(self._count))
        return Outcome(
            rows - there,
            (there - rows).total(),
            count or 0,
            is_strict=self._is_strict,
            is_refused=count is None,
            is_alike=self._is_alike,
            resent=self._resent,
            events=self.events,
        )

    def _distribution(self) -> Tasks:
        """Give each row to one of 2 to 8 tasks, in one of the ways in which Spark does it."""
        chance = self._chance
        count = chance.randint(2, 8)
        numbers: list[int] = list(range(self._count))
        match chance.choice(["ranges", "turns", "chance", "one"]):
            case "ranges":
                cuts = sorted(chance.choices(range(self._count + 1), k=count - 1))
                return [numbers[a:b] for a, b in itertools.pairwise([0, *cuts, self._count])]
            case "turns":
                return [numbers[task::count] for task in range(count)]
            case "one":  # with rows, of many without
                used = chance.randrange(count)
                return [numbers if task == used else [] for task in range(count)]
        tasks: Tasks = [[] for _ in range(count)]
        for number in numbers:
            chance.choice(tasks).append(number)
        return tasks

    def _go_on(self) -> None:
        """Change what the next run has."""
        chance = self._chance
        if self._moves and chance.random() < 0.8:
            self._tasks = self._distribution()
            self._is_alike = False
            self.events["rows moved"] += 1
        if self._changes:
            self._versions = [each + (chance.random() < 0.3) for each in self._versions]
            self._is_alike = False
            self.events["values changed"] += 1

    def _value(self, number: int) -> bytes:
        return b"%d:%d" % (number, self._versions[number])

    def _values(self) -> list[bytes]:
        return [value for name in self._names for value in self._broker.topics[str(name)].values]

    # ---- runs

    def _run(self, batch: int, tasks: Tasks, *, last: bool) -> int | None:
        """One run; gives how many messages may be duplicated, None if a task refused its rows."""
        chance, stored = self._chance, Counter(self._values())
        run, ended = chance.getrandbits(32), list[Ended]()
        dies = not last and chance.random() < 0.6
        with self._client() as client, ExitStack() as stack:
            opened = []
            try:
                left = []
                for number, rows in enumerate(tasks):
                    if dies and chance.random() < 0.3:
                        continue  # it had no core
                    origin = Origin(batch, number, 0, run=run)
                    task = DedupTask(
                        client, f"spark-query-{number}", origin, SECRET, required=True, strict=self._is_strict
                    )
                    stack.enter_context(closing(task))
                    size = chance.choice([1, 3, 1000])
                    options = producing(batching_max_messages=size, batching_max_publish_delay=1000.0)
                    writer = stack.enter_context(self._writer(client, task, options))
                    opened.append((task, writer))
                    values = [self._value(each) if batch == BATCH else b"before:%d" % each for each in rows]
                    end = chance.randrange(len(values) + 1) if dies else len(values)
                    left.append((writer, self._blocks(values[:end])))
                while left:  # tasks write at the same time, or one after the other
                    writer, blocks = at = chance.choice(left) if chance.random() < 0.5 else left[0]
                    if blocks:
                        writer.send(columns(blocks.pop(0)))
                    else:
                        if not dies or chance.random() < 0.5:
                            writer.flush()
                        left.remove(at)
                if dies:
                    self.events["died"] += 1
                    return None
                for task, writer in opened:
                    task.finish()
                    ended.append((task, writer.sent))
                return told(*ended) if last else None
            except DuplicatesError:
                self.events["refused"] += 1
                return None
            finally:
                self._note_resent(stored)

    def _client(self) -> Any:
        return client_of(self._broker, operation_timeout=5.0)

    def _writer(self, client: Any, task: DedupTask, options: ProducerOptions) -> Any:
        return TopicWriter(client, self._topic, options, dedup=task)

    def _blocks(self, values: list[bytes]) -> list[list[bytes]]:
        size = self._chance.choice([1, 7, 1000])
        return [values[at : at + size] for at in range(0, len(values), size)]

    def _note_resent(self, stored: Counter[bytes]) -> None:
        if self._is_strict:
            added = Counter(self._values()) - stored
            self._resent += sum(count for value, count in added.items() if value in stored)
