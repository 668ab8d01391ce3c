"""Run events, as the library writes them."""

import json

import pytest
from openlineage.client.event_v2 import RunEvent, RunState
from openlineage.client.serde import Serde

from pulsar_spark.spark.lineage_listener import PRODUCER, run_event

RUN = "00000000-0000-0000-0000-000000000007"
URL = "pulsar://localhost:6650"
IN, OUT = "persistent://public/default/in", "persistent://public/default/out"


def test_all_of_an_event():
    event = run_event(
        "RUNNING", 1795258800123, RUN, ("jobs", "orders"), {(URL, IN), (URL, "a")}, {(URL, OUT)}
    )
    assert type(event) is RunEvent
    found = json.loads(Serde.to_json(event))
    assert found.pop("schemaURL").endswith("/OpenLineage.json#/$defs/RunEvent")
    assert found["job"]["facets"]["jobType"].pop("_schemaURL").endswith("#/$defs/JobTypeJobFacet")
    kind = {"processingType": "STREAMING", "integration": "SPARK", "jobType": "QUERY", "_producer": PRODUCER}
    assert found == {
        "eventType": "RUNNING",
        "eventTime": "2026-11-21T11:00:00.123+00:00",
        "producer": PRODUCER,
        "run": {"runId": RUN, "facets": {}},
        "job": {"namespace": "jobs", "name": "orders", "facets": {"jobType": kind}},
        "inputs": [
            {"namespace": URL, "name": "a", "facets": {}, "inputFacets": {}},
            {"namespace": URL, "name": IN, "facets": {}, "inputFacets": {}},
        ],
        "outputs": [{"namespace": URL, "name": OUT, "facets": {}, "outputFacets": {}}],
    }


@pytest.mark.parametrize("state", ["START", "RUNNING", "COMPLETE", "FAIL"])
def test_the_states_are_the_library_s(state):
    assert run_event(state, 0, RUN, ("jobs", "orders"), (), ()).eventType is RunState[state]


def test_a_failure_says_why():
    event = run_event("FAIL", 0, RUN, ("jobs", "orders"), (), (), "[PULSAR_DATA_LOSS] lost")
    found = json.loads(Serde.to_json(event))["run"]["facets"]["errorMessage"]
    assert found["message"] == "[PULSAR_DATA_LOSS] lost"
    assert found["programmingLanguage"] == "JAVA"
