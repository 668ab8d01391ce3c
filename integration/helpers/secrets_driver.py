"""A Spark driver whose queries fail in every way that a login can, and that keeps all that Spark says.

``python -m integration.helpers.secrets_driver FOLDER < JOBS``: the jobs are JSON, see :class:`Job`. Into
FOLDER go plans, errors, progress, the pages of Spark's UI, the event log and the checkpoints; its output has
the logs.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.broker.waiting import HANG
from integration.helpers.local_spark import ROOT, SHORT_RUN, local_spark

# Run by each Python as it starts: what workers log must be seen, too.
_CHATTY = """import logging
logging.basicConfig(level=logging.INFO)
logging.getLogger("pulsar_spark").setLevel(logging.DEBUG)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is done with one set of options.

    Attributes:
        options: of source and sink alike.
        parts: out of write, read (batches) and stream (both).
        fails: the code of the error that each part ends with; None where all goes well.
    """

    name: str
    options: dict[str, str] = field(repr=False)
    parts: tuple[str, ...]
    fails: str | None


def dump(jobs: list[Job]) -> str:
    """The jobs as this driver reads them."""
    return json.dumps([asdict(job) for job in jobs])


def documented_redaction() -> dict[str, str]:
    """The settings by which docs/security.md hides secrets."""
    lines = (ROOT / "docs" / "security.md").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.startswith("spark.sql.redaction."))


def environment(folder: Path) -> None:
    """Write what has to be on the driver's PYTHONPATH into `folder`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_CHATTY)


def main(folder: Path, jobs: list[Job]) -> None:
    (folder / "events").mkdir()
    settings = {
        "spark.log.level": "INFO",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
        "spark.eventLog.compress": "false",
        **documented_redaction(),
    }
    spark = local_spark(folder / "spark", "secrets", settings, java=SHORT_RUN)
    for job in jobs:
        _run(spark, job, folder)
    _keep_pages(spark, folder / "pages")
    spark.stop()


def _run(spark: SparkSession, job: Job, folder: Path) -> None:
    said = folder / f"{job.name}.said"
    rows = spark.range(20).selectExpr("cast(id as string) as value").coalesce(1)
    for part in job.parts:
        try:
            kept = _PARTS[part](spark, job, rows, folder)
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            kept = str(error)
            assert job.fails is not None, f"{job.name}: {kept}"
            assert job.fails in kept, f"{job.name}: {kept}"
        else:
            assert job.fails is None, f"{job.name}: {part} did not fail"
        with said.open("a") as file:
            file.write(f"{part}\n{kept}\n")


def _write(spark: SparkSession, job: Job, rows: DataFrame, folder: Path) -> str:
    rows.write.format("pulsar").options(**job.options).mode("append").save()
    return ""


def _read(spark: SparkSession, job: Job, rows: DataFrame, folder: Path) -> str:
    found = spark.read.format("pulsar").options(**job.options).load()
    assert found.count() == rows.count()
    # What users see of a plan: explain(extended=True), and what tools ask for.
    return str(found._jdf.queryExecution().toString()) + repr(found)


def _stream(spark: SparkSession, job: Job, rows: DataFrame, folder: Path) -> str:
    source = spark.readStream.format("pulsar").options(**job.options, startingOffsets="earliest").load()
    sink = source.select("value").writeStream.format("pulsar").options(**job.options)
    sink = sink.option("checkpointLocation", str(folder / "checkpoints" / job.name))
    query = sink.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(int(HANG))
    finally:
        kept = _progress(query)
        query.stop()
        (folder / f"{job.name}.progress").write_text(kept)
    return str(source._jdf.queryExecution().toString()) + str(query._jsq.explainInternal(True))


_PARTS = {"write": _write, "read": _read, "stream": _stream}


def _progress(query: StreamingQuery) -> str:
    progress: list[Any] = list(query.recentProgress)
    return "\n".join([*(each.json for each in progress), str(query.status), repr(query)])


def _keep_pages(spark: SparkSession, folder: Path) -> None:
    """The pages of the UI, and its REST answers."""
    folder.mkdir()
    root = spark.sparkContext.uiWebUrl
    assert root is not None
    port = root.rpartition(":")[2]
    app = f"api/v1/applications/{spark.sparkContext.applicationId}"
    queries = _get(port, f"{app}/sql?details=true&planDescription=true&length=1000")
    (folder / "sql.json").write_text(queries)
    for number in range(len(json.loads(queries))):
        (folder / f"execution-{number}.html").write_text(_get(port, f"SQL/execution/?id={number}"))
    for name in ("jobs", "SQL", "environment", "StreamingQuery", f"{app}/environment", f"{app}/stages"):
        (folder / f"{name.replace('/', '-')}.html").write_text(_get(port, name))


def _get(port: str, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=HANG) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Job(**job) for job in json.load(sys.stdin)])
