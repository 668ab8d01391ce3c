"""Run events of OpenLineage, with topics as datasets. Pure.

This module is loaded on first use, because ``openlineage-python`` is an extra and slow to load.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import RunFacet, error_message_run, job_type_job

from pulsar_spark.version import VERSION

# The producer's URI, which events must contain.
PRODUCER = f"urn:pulsar-spark:{VERSION}"


def run_event(
    state: str,
    time_ms: int,
    run: str,
    job: tuple[str, str],
    inputs: Iterable[tuple[str, str]],
    outputs: Iterable[tuple[str, str]],
    error: str | None = None,
) -> RunEvent:
    """Returns the event of a query's run.

    Args:
        state: ``START``, ``RUNNING``, ``COMPLETE`` or ``FAIL``.
        run: id of the query's run, a UUID.
        inputs: service URL and name of each topic that is read.
        outputs: service URL and name of each topic that is written.
    """
    time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    facets: dict[str, RunFacet] = {}
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=error, programmingLanguage="JAVA", producer=PRODUCER
        )
    kind = job_type_job.JobTypeJobFacet(
        processingType="STREAMING", integration="SPARK", jobType="QUERY", producer=PRODUCER
    )
    return RunEvent(
        eventTime=time.isoformat(timespec="milliseconds"),
        producer=PRODUCER,
        eventType=RunState[state],
        run=Run(run, facets),
        job=Job(*job, {"jobType": kind}),
        inputs=[InputDataset(*each) for each in sorted(inputs)],
        outputs=[OutputDataset(*each) for each in sorted(outputs)],
    )
