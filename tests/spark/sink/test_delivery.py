"""What is promised of a write: the decision as a table, and what becomes of it."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pulsar_spark.client import DedupTask, Origin
from pulsar_spark.errors import NotReadyError, OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.connection import own_decryptor
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.options.sink import Delivery, SinkOptions
from pulsar_spark.spark.sink import delivery
from pulsar_spark.spark.sink.commit_log import LogProtection, QueryLog
from pulsar_spark.spark.sink.delivery import (
    Dedup,
    decide_dedup,
    dedup_task,
    log_guarantee,
    log_protection,
    name_prefix,
    query_log,
    query_secret,
)
from pulsar_spark.spark.sink.micro_batch import MicroBatch, count_write, read_write_numbers
from tests.loops import for_each

BATCH = MicroBatch("query", "run", 7, 3, is_retried=False)
ENCRYPTED = {"pulsar.producer.encryptionKeys": "own", "pulsar.producer.cryptoKeyReader": "/keys"}
ASKED = {"delivery": "effectively-once"}
EITHER = (False, True)

# delivery, micro-batch, sequence ids of rows -> decision, or text of the error
TABLE = [
    (Delivery.AT_LEAST_ONCE, EITHER, EITHER, Dedup.NO),
    (Delivery.TRANSACTIONAL, EITHER, EITHER, Dedup.NO),
    (Delivery.EFFECTIVELY_ONCE, EITHER, (True,), "column __sequenceId"),
    (Delivery.EFFECTIVELY_ONCE, (False,), (False,), "plain batch write"),
    (Delivery.EFFECTIVELY_ONCE, (True,), (False,), Dedup.REQUIRED),
    (None, (False,), EITHER, Dedup.NO),
    (None, (True,), (True,), Dedup.NO),
    (None, (True,), (False,), Dedup.WHERE_ENABLED),
]
CASES = [
    (asked, *case, expected)
    for asked, batch, ids, expected in TABLE
    for case in itertools.product(batch, ids)
]


@for_each(("asked", "is_batch", "has_ids", "expected"), CASES)
def test_the_decision(asked, is_batch, has_ids, expected):
    given = {"is_micro_batch": is_batch, "has_sequence_ids": has_ids}
    is_deduplicated = expected in (Dedup.REQUIRED, Dedup.WHERE_ENABLED)
    for has_initial_id in EITHER:
        wanted = "initialSequenceId" if is_deduplicated and has_initial_id else expected
        if isinstance(wanted, Dedup):
            assert decide_dedup(asked, **given, has_initial_id=has_initial_id) is wanted
        else:
            with pytest.raises(OptionError, match=wanted):
                decide_dedup(asked, **given, has_initial_id=has_initial_id)


def test_the_table_is_complete():
    assert len({case[:3] for case in CASES}) == len(CASES) == (len(Delivery) + 1) * 2**2


def options(given: Mapping[str, str]) -> SinkOptions:
    return parse_sink({"service.url": "pulsar://localhost:6650", "topic": "t", **given})


def task(given: Mapping[str, str], batch: MicroBatch | None = BATCH, *, has_sequence_ids=False, writes=None):
    # A DedupTask asks its client for nothing before a producer is opened.
    return dedup_task(None, options(given), batch, writes or {}, has_sequence_ids=has_sequence_ids)


@pytest.mark.parametrize("asked", [{}, ASKED])
def test_encrypted_rows_are_compared_with_what_the_keys_of_the_sink_decrypt(asked, tmp_path):
    keys = {**ENCRYPTED, "pulsar.producer.cryptoKeyReader": str(tmp_path)}
    found = task({**asked, **keys})
    assert found is not None
    assert found.required == bool(asked)
    encryption = options(keys).encryption
    assert encryption is not None
    assert found.decryptor._kept is own_decryptor(encryption)._kept


def test_a_task_writes_under_the_name_of_its_query_and_number():
    digest = hashlib.sha256(b"producer name query").hexdigest()[:16]
    found = task({})
    assert found is not None
    assert (found.name, found.place, found.required) == (f"spark-{digest}-3", (7, 3), False)
    named = task({"pulsar.producer.producerName": "mine"})
    assert named is not None
    assert named.name == f"mine-{digest}-3"
    assert name_prefix(options({}), BATCH) == f"spark-{digest}"


def test_names_of_producers_do_not_tell_the_secret():
    """Everybody who reads a topic sees them; the query's id is what its entries are signed with."""
    query = "9b6e2a7c-51c5-4d0e-8a1b-07f6d1f3f0aa"
    batch = replace(BATCH, query=query)
    found, secret = task({}, batch), query_secret(query)
    assert found is not None
    assert found.secret == secret
    # By it the next version finds what this one has stored.
    assert secret == hashlib.sha256(b"origins " + query.encode()).digest()
    digest = found.name.split("-")[1]
    assert digest not in secret.hex()
    assert not any(part in found.name for part in query.split("-"))


def test_a_task_of_a_stream_uses_the_log_of_its_query(monkeypatch):
    monkeypatch.setenv("LOG_KEY", "fedcba9876543210")
    given = {"delivery": "transactional", "topic": "a/b/orders", "transactionLogKey": "env:LOG_KEY"}
    topic = TopicName.parse("a/b/spark-transactions-query")
    log = QueryLog(topic, 7, LogProtection(b"fedcba9876543210"), may_be_replay=True)
    assert query_log(options(given), BATCH, {}) == log
    assert query_log(options(given), None, {}) is None
    assert query_log(options({}), BATCH, {}) is None


def test_only_the_first_micro_batch_of_a_run_may_be_committed_already():
    batch = replace(BATCH, run="9b6e2a7c-51c5-4d0e-8a1b-07f6d1f3f0aa")
    for first, may_be_replay in ((6, False), (7, True)):
        writes = {batch.query: json.dumps([batch.run, first, {}, first])}
        log = query_log(options({"delivery": "transactional", "topic": "a"}), batch, writes)
        assert log is not None
        assert log.may_be_replay is may_be_replay


def test_queries_have_names_and_secrets_of_their_own():
    one, other = task({}), task({}, replace(BATCH, query="other"))
    again = task({}, replace(BATCH, run="another run"))
    assert one is not None
    assert other is not None
    assert again is not None
    assert (one.name, one.secret) == (again.name, again.secret)
    assert one.name != other.name
    assert one.secret != other.secret


@pytest.mark.usefixtures("folder")
def test_entries_say_which_write_of_which_micro_batch_and_task_they_are_of():
    """And a later micro-batch of a run is no replay, in whatever process."""
    batch = replace(BATCH, run=str(uuid.UUID(int=1)))
    topic = options({}).topic
    for write, number in ((0, 7), (1, 7), (0, 8), (1, 8)):
        found = task({}, replace(batch, number=number), writes=read_write_numbers())
        assert found is not None
        run = zlib.crc32(batch.run.encode()) >> 1
        assert found.origin == Origin(number, 3, write, run=run)
        assert found.may_be_replay is (number == 7)
        count_write(batch.query, batch.run, number, topic)


RUN, OTHER_RUN = (str(uuid.UUID(int=number)) for number in (1, 2))

# What the task is, where the driver has committed micro-batch 6 of RUN; whether it may be a replay.
REPLAYS = {
    "the next micro-batch": ({}, False),
    "a later one": ({"number": 99}, False),
    "the same one again": ({"number": 6}, True),
    "one before": ({"number": 5}, True),
    "a retry, or a speculative copy": ({"is_retried": True}, True),
    "a restart of the query": ({"run": OTHER_RUN}, True),
    "another query": ({"query": "other"}, True),
    "a function's own job group": ({"run": "mine"}, True),
    "a function without a job group": ({"run": ""}, True),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("given", "expected"), REPLAYS.values(), ids=REPLAYS)
def test_a_task_knows_whether_it_may_be_a_replay(given, expected):
    """It surely is none if this run of the query has committed an earlier micro-batch."""
    count_write("query", RUN, 6, None)
    batch = replace(MicroBatch("query", RUN, 7, 3, is_retried=False), **given)
    found = task({}, batch, writes=read_write_numbers())
    assert found is not None
    assert found.may_be_replay is expected


@pytest.mark.parametrize("run", [RUN, "mine", ""])
@pytest.mark.usefixtures("folder")
def test_a_job_group_that_outlives_runs_tells_nothing(run):
    count_write("query", run, 6, None)
    found = task({}, MicroBatch("query", run, 7, 3, is_retried=False), writes=read_write_numbers())
    assert found is not None
    assert found.may_be_replay is (run != RUN)


def test_without_counts_each_micro_batch_may_be_a_replay():
    """Such as after a restart of the driver."""
    for number in (7, 8):
        found = task({}, replace(BATCH, number=number))
        assert found is not None
        assert found.may_be_replay


def test_what_cannot_be_promised_is_refused():
    with pytest.raises(OptionError, match="cannot be used with a column __sequenceId"):
        task(ASKED, has_sequence_ids=True)
    with pytest.raises(OptionError, match="plain batch write: a second run"):
        task(ASKED, None)


def test_a_batch_write_is_not_deduplicated():
    assert task({}, None) is None


@pytest.mark.parametrize("given", [{}, ASKED])
def test_an_initial_sequence_id_is_refused_where_it_has_no_effect(given):
    initial = {"pulsar.producer.initialSequenceId": "7"}
    with pytest.raises(OptionError, match=r"initialSequenceId has no effect .* delivery=at-least-once"):
        task({**given, **initial})
    assert task({**initial, "delivery": "at-least-once"}) is None
    assert task(initial, None) is None


def test_a_query_may_fail_rather_than_write_twice():
    found = task({**ASKED, "failOnDuplicates": "true"})
    assert found is not None
    assert found.strict
    assert not task(ASKED).strict


# ---- what is logged


class Asked:
    """A DedupTask that answers whether the broker deduplicates."""

    def __init__(self, *answers: bool | NotReadyError | None) -> None:
        self.answers = list(answers)

    def deduplicates(self) -> bool | None:
        answer = self.answers.pop(0)
        if isinstance(answer, NotReadyError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch, caplog):
    monkeypatch.setattr(delivery, "_warnings", {})
    caplog.set_level(logging.INFO, delivery.__name__)


def logged(
    caplog, batch: MicroBatch | None, dedup: DedupTask | Asked | None, given: Mapping[str, str] | None = None
) -> str:
    """What a task logs, and what the driver is to warn of."""
    caplog.clear()
    warning = log_guarantee(options(given or {}), batch, dedup)  # type: ignore[arg-type]
    said = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    return " ".join(said if warning is None else [*said, f"WARNING {warning}"])


def test_the_guarantee_of_a_query_is_logged_once(caplog):
    assert logged(caplog, BATCH, Asked(True)) == "INFO query query: each row is written effectively once"
    assert logged(caplog, BATCH, Asked()) == ""
    assert logged(caplog, MicroBatch("other", "run", 7, 3, is_retried=False), Asked(True))


def test_what_another_process_has_logged_is_not_logged_again(caplog, monkeypatch):
    asked = []
    monkeypatch.setattr(delivery, "is_first_to_say", lambda what: bool(asked.append(what)))
    assert logged(caplog, BATCH, Asked(True)) == ""
    assert logged(caplog, BATCH, None, TRANSACTIONAL) == ""
    assert asked == ["what is promised of query query"]
    monkeypatch.setattr(delivery, "_warnings", {})
    assert logged(caplog, BATCH, None, TRANSACTIONAL).startswith(
        "WARNING query query: everybody who may produce"
    )
    assert len(asked) == 2
    # A plain batch write has no name by which others would know it.
    assert "this is a plain batch write" in logged(caplog, None, None)


def test_a_broker_that_does_not_deduplicate_is_warned_of(caplog):
    text = logged(caplog, BATCH, Asked(False))
    assert text.startswith("WARNING query query: rows are written at least once, because the broker has")
    assert logged(caplog, BATCH, Asked()) == text  # from each task: a report may get lost with its task


def test_at_least_once_is_said_so(caplog):
    expected = (
        "INFO rows are written at least once, because of delivery=at-least-once or because this is a plain "
        "batch write"
    )
    assert logged(caplog, BATCH, None) == expected
    assert logged(caplog, None, None) == expected
    assert logged(caplog, None, None) == ""


TRANSACTIONAL = {"delivery": "transactional"}


def test_a_log_that_others_may_write_to_is_warned_of(caplog):
    said, warned = logged(caplog, BATCH, None, TRANSACTIONAL).split(" WARNING ")
    assert said == "INFO query query: each row is written once, in transactions"
    assert "produce to persistent://public/default/spark-transactions-query can make the query" in warned
    assert logged(caplog, BATCH, None, TRANSACTIONAL) == f"WARNING {warned}"


def test_a_log_that_is_signed_is_not_warned_of(caplog):
    given = TRANSACTIONAL | {"transactionLogKey": "env:LOG_KEY"}
    assert logged(caplog, BATCH, None, given) == "INFO query query: each row is written once, in transactions"


def test_a_batch_write_has_no_log(caplog):
    assert logged(caplog, None, None, TRANSACTIONAL).startswith("INFO rows are written in transactions")


def test_the_key_of_the_log_is_read_where_it_is_used(monkeypatch):
    monkeypatch.setenv("LOG_KEY", "0123456789abcdef")
    given = TRANSACTIONAL | {"transactionLogKey": "env:LOG_KEY"}
    assert log_protection(options(given)) == LogProtection(b"0123456789abcdef")
    assert log_protection(options(TRANSACTIONAL)) == LogProtection()
    assert log_protection(options(TRANSACTIONAL | ENCRYPTED)).encryptor is not None


def test_what_is_not_known_yet_is_logged_later(caplog):
    asked = Asked(None, NotReadyError("no broker"), True)
    assert logged(caplog, BATCH, asked) == ""
    assert "not known yet whether the broker has deduplication enabled" in logged(caplog, BATCH, asked)
    assert "effectively once" in logged(caplog, BATCH, asked)
