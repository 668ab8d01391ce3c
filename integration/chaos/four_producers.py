"""Four producers of typed rows: chunks, batches, LZ4, and single messages.

They write on where their broker is killed and returns, and number their rows: producer n of four begins at n.
Each has keys of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pulsar
from pulsar.schema import JsonSchema, Long, Record, String

from integration.chaos.messages import columns_of
from integration.helpers import peer
from integration.helpers.task_runs import open_writer
from pulsar_spark.client import Client, ClientOptions, Schema, SchemaType
from pulsar_spark.ids import MessageId

PRODUCERS = 4
_AT_A_TIME = 20
_SILENCE_MS = 20_000
_KEYS = 10
# What makes a message of three chunks.
_TEXT = "." * 150
_CHUNK = 160  # bytes


class _Row(Record):  # type: ignore[misc]  # the client has no types
    number = Long()
    text = String()


class StoredRow(NamedTuple):
    """A row in a cluster: its topic partition, id, key, and publish time in ms."""

    partition: str
    id: MessageId
    key: str
    publish_time: int


def stored_rows(service_url: str, topic: str) -> dict[int, StoredRow]:
    """The rows of a topic, by number; an AssertionError if one is there twice."""
    found: dict[int, StoredRow] = {}
    with peer.Peer(service_url) as opened:
        for message in opened.messages(topic, silence_ms=_SILENCE_MS):
            number, place = json.loads(message.data())["number"], message.message_id()
            assert number not in found, f"{number} is stored twice, although the namespace deduplicates"
            position = MessageId(place.ledger_id(), place.entry_id(), place.batch_index())
            key, time_ms = message.partition_key(), message.publish_timestamp()
            found[number] = StoredRow(message.topic_name(), position, key, time_ms)
    return found


class FourProducers:
    """Threads that write ``rows`` rows each, the first 20 at once, and the others when ``go_on`` is set.

    Chunks wait for ``go_on``, too: the replicator leaves out those before a new schema (Pulsar 4.2.4).

    Args:
        service_url: of the broker.
        topic: to write to.
        rows: of each producer.
        first: number of the first row.
        name: begins the keys.
        pause: seconds between 20 rows and the next ones.

    Attributes:
        go_on: whether to write more than the first rows.
        ends: whether to end before all are written.
    """

    def __init__(
        self, service_url: str, topic: str, rows: int, first: int = 0, name: str = "", pause: float = 0.05
    ) -> None:
        self.go_on, self.ends = threading.Event(), threading.Event()
        self._pause = pause
        self._url, self._topic, self._rows, self._first, self._name = service_url, topic, rows, first, name
        self._errors: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(PRODUCERS)
        ]
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all rows are stored; raises the error of a producer."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        for error in self._errors:
            raise error
        left = [number for number, thread in enumerate(self._threads) if thread.is_alive()]
        assert not left, f"producers {left} still write"

    def _run(self, number: int) -> None:
        try:
            if number == 0:
                self._write_chunks(number)
            else:
                self._write_by_cpp(number)
        except Exception as error:  # noqa: BLE001 - join() raises it
            self._errors.append(error)

    def _write_chunks(self, number: int) -> None:
        schema = Schema(SchemaType.JSON, json.dumps(_Row.schema(), indent=True).encode(), {})
        how = {"batching": False, "chunking": True, "chunk_max_message_size": _CHUNK, "schema": schema}
        with (
            Client(ClientOptions(service_url=self._url)) as client,
            closing(open_writer(client, self._topic, None, **how)) as writer,
        ):
            self.go_on.wait()
            for group in self._groups(number):
                rows = [(json.dumps({"number": each, "text": _TEXT}), self._key(each)) for each in group]
                writer.send(columns_of([peer.Record(value.encode(), key=key) for value, key in rows]))
            writer.flush()

    def _write_by_cpp(self, number: int) -> None:
        how: dict[str, Any] = (
            {"batching_max_messages": _AT_A_TIME},
            {"batching_max_messages": 7, "compression_type": pulsar.CompressionType.LZ4},
            {"batching_enabled": False},
        )[number - 1]
        how = {"batching_enabled": True, "send_timeout_millis": 0, "max_pending_messages": self._rows} | how
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")  # it tries again all the time
        results: list[pulsar.Result] = []
        with (
            closing(pulsar.Client(self._url, logger=quiet)) as client,
            closing(client.create_producer(self._topic, schema=JsonSchema(_Row), **how)) as producer,
        ):
            for group in self._groups(number):
                for each in group:
                    row, key = _Row(number=each, text=_TEXT), self._key(each)
                    producer.send_async(row, lambda result, _: results.append(result), partition_key=key)
            producer.flush()
        assert set(results) == {pulsar.Result.Ok}, set(results)

    def _groups(self, number: int) -> Iterator[range]:
        """The numbers of a producer's rows, a few at a time."""
        last = self._first + self._rows * PRODUCERS
        for first in range(self._first + number, last, _AT_A_TIME * PRODUCERS):
            yield range(first, min(first + _AT_A_TIME * PRODUCERS, last), PRODUCERS)
            self.go_on.wait()
            if self.ends.wait(self._pause):
                return

    def _key(self, number: int) -> str:
        return f"{self._name}{number % PRODUCERS}-{number // PRODUCERS % _KEYS}"
