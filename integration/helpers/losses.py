"""All ways to take unprocessed messages from a query, each tried in all states of the query.

A topic has ledgers of five entries and no retention. The query has processed the first rows of 20 when
somebody acts; or the other rows are in a micro-batch that is planned and not read yet. Afterwards every row
was read, or the query has told, once and with the range, that rows are lost.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from integration.broker import Admin
from integration.broker.admin import AdminError, topic_path
from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, InjectedError, PulsarInSpark, drain, start
from integration.helpers.peer import Peer, Record
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId

BROKER = {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    # What a subscription that was moved does not hold any more goes when its position is stored.
    "managedLedgerCursorPositionFlushSeconds": "1",
    "backlogQuotaCheckIntervalInSeconds": "1",
    "messageExpiryCheckIntervalInMinutes": "1",
}
_LEDGER, _ROWS = 5, 20
# A topic without any subscription loses a full ledger at once: this one holds it until the query has its own.
_HOLDER = "holder"
# Rows that are processed, by place: the last one in its ledger, or not; that ledger is then stored or gone.
PLACES = {"inside": 3, "at": _LEDGER, "after": _LEDGER}
STATES = ("stopped", "idle", "long")
# The other rows are planned: as one task, as one that has failed before, as several that only warn of losses.
PLANNED = ("planned", "retried", "split")

_RANGE = r"\(-?\d+:-?\d+(?::\d+)?, (?:-?\d+:-?\d+|the end)\]"


@dataclass(frozen=True, slots=True)
class Here:
    """Where cells are tried.

    Attributes:
        log: gives all that planners have logged so far.
    """

    spark: PulsarInSpark
    admin: Admin
    log: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Topic:
    """One cell's topic, alone in its namespace, and the subscription of its query."""

    admin: Admin
    namespace: str
    subscription: str = ""

    @property
    def name(self) -> str:
        return f"persistent://{self.namespace}/t"

    @property
    def ledgers(self) -> list[int]:
        return [each["ledgerId"] for each in self.admin.internal_stats(self.name)["ledgers"]]

    @property
    def mark(self) -> MessageId:
        """Where the subscription stands."""
        cursors = self.admin.internal_stats(self.name)["cursors"]
        return MessageId.parse(cursors[self.subscription]["markDeletePosition"])

    def post(self, what: str, body: object = None) -> None:
        """Send a request about the subscription."""
        self.admin.request("POST", f"{topic_path(self.name)}/subscription/{self.subscription}/{what}", body)

    def moves(self, act: Callable[[], object] = lambda: None) -> None:
        """Act until the subscription has moved."""
        before = self.mark

        def has_moved() -> bool:
            # Some requests are refused while another one is being done.
            with contextlib.suppress(AdminError):
                act()
            return self.mark > before

        wait_until(has_moved, interval=0.5)


def age_quota(topic: Topic, ids: list[MessageId]) -> None:
    topic.admin.set_message_age_quota(topic.namespace, limit_seconds=1, policy="consumer_backlog_eviction")
    topic.moves()
    topic.admin.request("DELETE", f"namespaces/{topic.namespace}/backlogQuota?backlogQuotaType=message_age")


def size_quota(topic: Topic, ids: list[MessageId]) -> None:
    topic.admin.set_backlog_quota(topic.namespace, limit_bytes=300, policy="consumer_backlog_eviction")
    topic.moves()
    path = f"namespaces/{topic.namespace}/backlogQuota?backlogQuotaType=destination_storage"
    topic.admin.request("DELETE", path)


def ttl(topic: Topic, ids: list[MessageId]) -> None:
    # A broker may act at once when it hears of it.
    topic.moves(lambda: topic.admin.request("POST", f"namespaces/{topic.namespace}/messageTTL", 1))
    topic.admin.request("DELETE", f"namespaces/{topic.namespace}/messageTTL")


def truncate(topic: Topic, ids: list[MessageId]) -> None:
    topic.admin.request("DELETE", f"{topic_path(topic.name)}/truncate")


def skip_all(topic: Topic, ids: list[MessageId]) -> None:
    topic.post("skip_all")


def expire(topic: Topic, ids: list[MessageId]) -> None:
    topic.moves(lambda: topic.post("expireMessages/1"))


def clear_backlog(topic: Topic, ids: list[MessageId]) -> None:
    topic.admin.request("POST", f"namespaces/{topic.namespace}/clearBacklog")


def reset_forward(topic: Topic, ids: list[MessageId]) -> None:
    middle = ids[12]
    topic.moves(
        lambda: topic.post(
            "resetcursor", {"ledgerId": middle.ledger, "entryId": middle.entry, "partitionIndex": -1}
        )
    )


def retention(topic: Topic, ids: list[MessageId]) -> None:
    """Nobody acts: the broker only removes what is consumed."""


ACTIONS = (age_quota, size_quota, ttl, truncate, skip_all, expire, clear_backlog, reset_forward, retention)
Action = Callable[[Topic, list[MessageId]], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One way, one state of the query, and one place up to which it has processed the topic."""

    action: Action
    state: str
    place: str

    def __str__(self) -> str:
        return f"{self.action.__name__}-{self.state}-{self.place}"


CELLS = [Cell(*each) for each in product(ACTIONS, [*STATES, *PLANNED], PLACES)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell.

    Attributes:
        missing: numbers of the rows that were not read.
        lost: ranges that the query said are lost, in its first run after the action.
        unsure: ranges that it said may be lost.
        unnamed: rows that are missing and in none of these ranges.
    """

    missing: list[int]
    lost: list[str]
    unsure: list[str]
    unnamed: list[int]

    def check(self, cell: Cell) -> None:
        """Raise AssertionError if a promise is not kept."""
        told = [*self.lost, *self.unsure]
        assert not self.unnamed, f"{cell}: rows are lost and not named: {self}"
        # A micro-batch that ends at the end of a ledger that is gone before it has been acknowledged: a query
        # cannot know that nothing came after it. The guarantees say so.
        is_known_limit = cell.state == "long" and cell.place != "inside" and cell.action is not retention
        is_false = bool(self.lost) and not self.missing
        assert not is_false or is_known_limit, f"{cell}: told, and nothing is lost: {self}"
        # The query was started again before; tasks and planner tell what they find for themselves.
        assert len(told) <= 1 or cell.state in PLANNED, f"{cell}: told more than once: {self}"
        # Somebody moved the subscription while a micro-batch ran: its task may have read before, or not.
        may_be_unsure = cell.state in {"stopped", "long", *PLANNED}
        assert not self.unsure or may_be_unsure, f"{cell}: a query that runs knows: {self}"


def run_cell(here: Here, cell: Cell, folder: Path) -> Outcome:
    """Try one cell in a namespace of its own, with a checkpoint in ``folder``."""
    run = _Run(here, cell, folder)
    try:
        run.process()
        run.lose()
        error = run.go_on()
        told = f"{error}\n{run.log}"
        run.drain(failOnDataLoss="false")  # what is left
    finally:
        run.close()
    return run.outcome(told)


class _Run:
    """One cell, step by step."""

    def __init__(self, here: Here, cell: Cell, folder: Path) -> None:
        self._here, self._cell, self._folder = here, cell, folder
        self._topic = Topic(here.admin, f"public/{cell}")
        here.admin.create_namespace(self._topic.namespace)
        here.admin.create_topic(self._topic.name)
        here.admin.create_subscription(self._topic.name, _HOLDER)
        self._ids: list[MessageId] = []
        self._sink = Collector()
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._is_planned = threading.Event()
        self._held_rows = 0  # a micro-batch may come with some of the rows only
        self._query: StreamingQuery | None = None

    def process(self) -> None:
        """Process the first rows, and leave the query in the cell's state."""
        count = PLACES[self._cell.place]
        self._produce(count)
        if self._cell.state in {"stopped", *PLANNED}:
            self.drain()
        else:
            # Longer than the action takes: the query looks after it.
            pause = {"idle": 15, "long": 0}[self._cell.state] * (5 if self._cell.action is ttl else 1)
            rows = self._here.spark.stream(self._topic.name)
            if self._cell.state == "long" and self._cell.place != "after":
                self._hold(count)
            self._query = start(rows, self._batch, self._folder, processingTime=f"{pause} seconds")
            self._await(lambda: len(self._sink.values) == count)
        subscriptions = self._here.admin.durable_subscriptions(self._topic.name)
        (subscription,) = (name for name in subscriptions if name != _HOLDER)
        self._topic = replace(self._topic, subscription=subscription)
        self._here.admin.delete_subscription(self._topic.name, _HOLDER)
        if self._may_go_on.is_set():
            self._await(lambda: self._topic.mark >= self._ids[-1])
        if self._cell.place == "after":
            self._trim()
            if self._cell.state == "long":
                self._hold(len(self._ids) + _LEDGER)
                self._produce(_LEDGER)
                self._await(lambda: len(self._sink.values) == len(self._ids))

    def lose(self) -> None:
        """Write the other rows, let somebody act, and have the broker remove what is not held any more."""
        self._produce(_ROWS - len(self._ids))
        if self._cell.state in PLANNED:
            self._plan()
        self._cell.action(self._topic, self._ids)
        self._trim()
        self._produce(1)

    def go_on(self) -> str:
        """Have the query read the rest; returns its error, if it has one."""
        self._may_go_on.set()
        try:
            if self._query is None:
                self.drain()
            else:
                self._await(lambda: self._sink.values[-1] == str(_ROWS))
        except StreamingQueryException as error:
            if DataLossError.code not in str(error):
                raise  # Spark's own failures tell nothing of the rows
            return str(error)
        finally:
            self.close()
        return ""

    def close(self) -> None:
        self._may_go_on.set()
        if self._query is not None:
            self._query.stop()

    def drain(self, **options: str) -> None:
        """Read all there is."""
        drain(self._here.spark.stream(self._topic.name, **options), self._batch, self._folder)

    @property
    def log(self) -> str:
        """What planners have logged of the topic."""
        return "\n".join(line for line in self._here.log().splitlines() if self._topic.name in line)

    def outcome(self, told: str) -> Outcome:
        """Compare what was read with what was told."""
        read = {int(value) for value in self._sink.values}
        missing = [number for number in range(_ROWS + 1) if number not in read]
        unsure = set(re.findall(f"({_RANGE}) may be lost", told))
        lost = set(re.findall(_RANGE, told)) - unsure
        return Outcome(
            missing,
            sorted(lost),
            sorted(unsure),
            [each for each in missing if not any(_names(told, self._ids[each]) for told in lost | unsure)],
        )

    def _plan(self) -> None:
        """Have a micro-batch of the other rows planned, and read later."""

        def read_later(batch: DataFrame, number: int) -> None:
            if self._cell.state == "retried" and not self._is_planned.is_set():
                with contextlib.suppress(PySparkException):
                    batch.foreach(_fail)
            self._is_planned.set()
            self._may_go_on.wait()
            self._batch(batch, number)

        self._may_go_on.clear()
        options = {"minPartitions": "4", "failOnDataLoss": "false"} if self._cell.state == "split" else {}
        self._query = start(self._here.spark.stream(self._topic.name, **options), read_later, self._folder)
        self._await(self._is_planned.is_set)

    def _hold(self, rows: int) -> None:
        """Let the micro-batch that brings the last of so many rows wait."""
        self._held_rows = rows
        self._may_go_on.clear()

    def _batch(self, batch: DataFrame, number: int) -> None:
        self._sink(batch, number)
        if len(self._sink.values) >= self._held_rows:
            self._may_go_on.wait()

    def _await(self, condition: Callable[[], object]) -> None:
        if self._query is None:
            wait_until(condition)
            return
        query = self._query

        def is_done() -> bool:
            if (error := query.exception()) is not None:
                raise error
            return bool(condition())

        wait_until(is_done)

    def _produce(self, count: int) -> None:
        numbers = range(len(self._ids), len(self._ids) + count)
        with Peer(self._here.spark.service_url) as peer:
            ids = peer.produce(self._topic.name, [Record(b"%d" % number) for number in numbers])
        self._ids += [MessageId(each.ledger_id(), each.entry_id()) for each in ids]

    def _trim(self) -> None:
        """Have the broker remove all ledgers that the subscription does not hold."""

        def is_trimmed() -> bool:
            self._here.admin.trim(self._topic.name)
            mark = self._topic.mark
            is_consumed = mark in self._ids[_LEDGER - 1 :: _LEDGER]
            return self._topic.ledgers[0] >= mark.ledger + is_consumed

        wait_until(is_trimmed, interval=0.1)


def _fail(row: Row) -> None:
    raise InjectedError(row)


def _names(told: str, message: MessageId) -> bool:
    """Whether a range holds a message."""
    first, last = told.strip("(]").split(", ")
    is_after = MessageId.parse(first) < message
    return is_after and (last == "the end" or message <= MessageId.parse(last))
