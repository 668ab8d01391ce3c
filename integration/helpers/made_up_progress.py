"""Progress of queries that do not run, for the live page: its test, and its picture in the documentation."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport


def progress(
    name: str,
    topic: str,
    batch: int,
    *,
    waiting: Sequence[int],
    rows: int,
    seconds: float,
    end_ms: int,
    data_losses: int = 0,
) -> QueryProgressEvent:
    """One micro-batch as Spark reports it.

    Args:
        waiting: by partition, messages that were not processed when it began; an entry holds 1,000.
        rows: that it has read, of 1 KiB each.
        end_ms: when it ended, in ms since 1970.
    """
    begin_ms = end_ms - round(seconds * 1000)
    partitions = tuple(
        PartitionBacklog(topic, str(number), f"{4711 + number}:{batch * 40}", left // 1000, 1, left)
        for number, left in enumerate(waiting)
    )
    report = SourceReport("1-a", "made up", 1, begin_ms, partitions, rows << 10, data_losses, 0)
    began = datetime.fromtimestamp(begin_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    speed = {"inputRowsPerSecond": 0.0, "processedRowsPerSecond": rows / seconds, "numInputRows": rows}
    source = {"description": "made up", "startOffset": "{}", "endOffset": "{}"}
    source |= {"latestOffset": json.dumps(report.to_json())}
    about = {"id": str(uuid.UUID(int=1)), "runId": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "name": name}
    rest = {"durationMs": {}, "stateOperators": [], "sink": {"description": "made up", "numOutputRows": -1}}
    return QueryProgressEvent(
        StreamingQueryProgress.fromJson(
            {
                **about,
                **speed,
                **rest,
                "timestamp": began.replace("+00:00", "Z"),
                "batchId": batch,
                "batchDuration": round(seconds * 1000),
                "sources": [source | speed],
            }
        )
    )
