"""PulsarLineageListener: reports to OpenLineage which topics queries read and write.

The topics of sources are in their reports to Spark (``monitoring/source_report``), the topics of sinks in
files of the driver (``monitoring/driver_files``). Other sources and sinks are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pulsar_spark.client import epoch_ms
from pulsar_spark.errors import LibraryError
from pulsar_spark.spark.monitoring.driver_files import read_sink_topics
from pulsar_spark.spark.monitoring.source_report import SourceReport
from pulsar_spark.version import VERSION

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import RunFacet

_log = logging.getLogger("pulsar_spark.lineage")

# The producer's URI, which events must contain.
PRODUCER = f"urn:pulsar-spark:{VERSION}"

Dataset = tuple[str, str]  # service URL and full name of a topic


@dataclass(slots=True)
class _Run:
    name: str
    inputs: frozenset[Dataset] = frozenset()
    outputs: frozenset[Dataset] = frozenset()
    emitted_ms: int = 0


class PulsarLineageListener(StreamingQueryListener):
    """Emits OpenLineage run events of streaming queries, with topics as datasets.

        spark.streams.addListener(PulsarLineageListener(OpenLineageClient()))

    A dataset's namespace is the service URL, its name the topic's full name. The job is the query's name, or
    its id; the run is Spark's run id. ``START`` has no topics, because Spark reports them with the first
    micro-batch. ``RUNNING`` is sent when topics are added, and otherwise at most once in each ``interval``.
    The end is ``COMPLETE``, also of a query that was stopped, or ``FAIL`` with Spark's error.

    Queries without Pulsar have events without datasets. The listener raises no errors into Spark: an event
    that cannot be emitted is logged once for each run of a query, by the logger ``pulsar_spark.lineage``.

    Args:
        client: client that sends the events. Use a transport that returns at once, such as ``async_http``,
            because Spark waits for it.
        interval: seconds between two RUNNING events with the same topics.

    Raises:
        LibraryError: ``openlineage-python`` is not installed.
    """

    def __init__(
        self, client: OpenLineageClient, *, namespace: str = "default", interval: float = 60
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._interval_ms = interval * 1000
        try:
            import openlineage.client.event_v2  # noqa: F401, PLC0415 - an extra, and slow to load
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "openlineage":
                raise
            raise LibraryError(
                "lineage requires the package openlineage-python, which is not installed",
                advice="Run pip install 'openlineage-python>=1.38' on the driver",
            ) from error
        self._runs: dict[str, _Run] = {}
        self._complained: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Emits START."""
        with self._logging_errors(str(event.runId)):
            self._start(str(event.runId), event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Emits RUNNING if topics were added, or if the last event is ``interval`` old."""
        progress = event.progress
        with self._logging_errors(str(progress.runId)):
            # The query may have started before the listener was added.
            run = self._start(str(progress.runId), progress.name or str(progress.id))
            reports = [SourceReport.parse(source.latestOffset) for source in progress.sources]
            inputs = run.inputs.union(
                (report.service_url, each.topic) for report in reports if report for each in report.partitions
            )
            outputs = run.outputs | read_sink_topics(str(progress.id))
            is_new = (inputs, outputs) != (run.inputs, run.outputs)
            run.inputs, run.outputs = inputs, outputs
            if is_new or epoch_ms() - run.emitted_ms >= self._interval_ms:
                self._emit("RUNNING", str(progress.runId), run)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Does nothing, because an idle query reads and writes no new topics."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Emits COMPLETE or FAIL."""
        key = str(event.runId)
        with self._logging_errors(key):
            run = self._runs.pop(key, None)
            if run is not None:
                self._emit("COMPLETE" if event.exception is None else "FAIL", key, run, event.exception)
        self._complained.discard(key)

    def _start(self, key: str, name: str) -> _Run:
        if key not in self._runs:
            self._runs[key] = _Run(name)
            self._emit("START", key, self._runs[key])
        return self._runs[key]

    def _emit(self, state: str, key: str, run: _Run, error: str | None = None) -> None:
        run.emitted_ms = epoch_ms()
        job = self._namespace, run.name
        self._client.emit(run_event(state, run.emitted_ms, key, job, run.inputs, run.outputs, error))

    @contextmanager
    def _logging_errors(self, run: str) -> Iterator[None]:
        try:
            yield
        except Exception:  # noqa: BLE001 - lineage that is missing must not disturb the queries
            if run not in self._complained:
                self._complained.add(run)
                _log.warning("the lineage of query %s is incomplete", run, exc_info=True)


def run_event(
    state: str,
    time_ms: int,
    run: str,
    job: tuple[str, str],
    inputs: Iterable[Dataset],
    outputs: Iterable[Dataset],
    error: str | None = None,
) -> RunEvent:
    """Returns the event of a query's run.

    Args:
        state: ``START``, ``RUNNING``, ``COMPLETE`` or ``FAIL``.
        job: namespace and name.
    """
    from openlineage.client import event_v2  # noqa: PLC0415 - an extra, and slow to load
    from openlineage.client.facet_v2 import error_message_run, job_type_job  # noqa: PLC0415

    time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    facets: dict[str, RunFacet] = {}
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=error, programmingLanguage="JAVA", producer=PRODUCER
        )
    kind = job_type_job.JobTypeJobFacet(
        processingType="STREAMING", integration="SPARK", jobType="QUERY", producer=PRODUCER
    )
    return event_v2.RunEvent(
        eventTime=time.isoformat(timespec="milliseconds"),
        producer=PRODUCER,
        eventType=event_v2.RunState[state],
        run=event_v2.Run(run, facets),
        job=event_v2.Job(*job, {"jobType": kind}),
        inputs=[event_v2.InputDataset(*each) for each in sorted(inputs)],
        outputs=[event_v2.OutputDataset(*each) for each in sorted(outputs)],
    )
