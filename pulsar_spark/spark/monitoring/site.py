"""The listener's site: the live page, the data that it requests, and the answer to a scrape. Pure.

Names of queries and topics are untrusted, so the page receives them as JSON and shows them as text. Its
Content-Security-Policy allows only the site's own script, and no requests to other hosts.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from hashlib import sha256
from importlib import resources
from typing import Any

from pulsar_spark.client import HttpAnswer
from pulsar_spark.spark.monitoring.metrics import Snapshot, bytes_per_second, prometheus_text
from pulsar_spark.spark.monitoring.query_figures import QueryFigures

PAGE_PATH, METRICS_PATH, JSON_PATH = "/", "/metrics", "/queries.json"

# Maximum topic partitions of a query on the page; the longest backlogs are shown.
MAX_PARTITIONS = 20


def _file(name: str) -> str:
    """Reads a file beside this module, which may be in an archive."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


# The page contains the words STYLE and SCRIPT where both files are inserted.
PAGE, STYLE, SCRIPT = _file("page.html"), _file("page.css"), _file("page.js")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_POLICY = "; ".join(
    [
        "default-src 'none'",
        f"script-src {_digest(SCRIPT)}",
        f"style-src {_digest(STYLE)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HTML = PAGE.replace("STYLE", STYLE).replace("SCRIPT", SCRIPT).encode()


def answer(path: str, snapshot: Snapshot) -> HttpAnswer | None:
    """Returns the site's answer for a path; None if the path does not exist."""
    if path == PAGE_PATH:
        return HttpAnswer("text/html; charset=utf-8", _HTML, {"Content-Security-Policy": _POLICY})
    if path == METRICS_PATH:
        return HttpAnswer("text/plain; version=0.0.4; charset=utf-8", prometheus_text(snapshot).encode())
    if path == JSON_PATH:
        return HttpAnswer("application/json", json.dumps(page_data(snapshot), allow_nan=False).encode())
    return None


def page_data(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the page's data. Times are in ms since 1970; null means unknown."""
    return {
        "timeMs": snapshot.time_ms,
        "queries": [_query(each, snapshot.time_ms) for each in snapshot.queries],
        "failedRuns": dict(snapshot.failed_runs),
    }


def _query(query: QueryFigures, now_ms: int) -> dict[str, Any]:
    last, partitions = query.last, query.partitions
    longest = sorted(partitions, key=lambda each: -each.entries)[:MAX_PARTITIONS]
    return {
        "name": query.name,
        "batch": None if last is None else last.number,
        "batchSeconds": None if last is None else last.seconds,
        "rowsPerSecond": None if last is None else _finite(last.rows_per_second),
        "bytesPerSecond": None if last is None else bytes_per_second(last),
        "rows": query.rows,
        "progressMs": query.progress_ms,
        "reads": bool(query.sources),
        "backlogEntries": query.backlog_entries,
        "backlogMessages": query.backlog_messages,
        "backlogMs": query.backlog_ms,
        "lagSeconds": max(query.lags(now_ms).values(), default=None),
        "endedPartitions": query.ended_partitions,
        "dataLosses": query.data_losses,
        "retries": query.planner_retries + query.written.retries,
        "writtenMessages": query.written.messages,
        "writtenBytes": query.written.bytes,
        "possibleDuplicates": query.written.possible_duplicates,
        "partitionCount": len(partitions),
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "entries": each.entries,
                "messages": each.messages,
                "end": each.end,
            }
            for each in longest
        ],
        "batches": [[each.time_ms, _finite(each.rows_per_second), each.seconds] for each in query.batches],
        "backlogs": [[each.time_ms, each.entries, each.messages] for each in query.backlogs],
    }


def _finite(number: float) -> float | None:
    """Returns the number; None if it is infinite.

    JSON has no infinity, which is Spark's rate of an empty micro-batch.
    """
    return number if math.isfinite(number) else None
