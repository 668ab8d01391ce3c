"""The declarative pipeline of examples/pipeline, run by spark-pipelines in a fresh environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from integration.deploy.environments import installed
from integration.helpers.local_spark import ROOT, SHORT_RUN
from integration.helpers.peer import Peer, Record

_FOLDER = ROOT / "examples" / "pipeline"
_ROWS = 1000
_LARGE = 100


def run_twice(home: Path, wheel: str, service_url: str) -> None:
    """Run the pipeline, and again when new orders have come: each order must be written once.

    Raises:
        AssertionError: the rows differ.
        subprocess.CalledProcessError: a run failed.
    """
    environment = installed(
        home / "environment", sys.executable, wheel, "pyspark[pipelines]>=4.2", "pandas<3"
    )
    shutil.copytree(_FOLDER, home / "pipeline")
    spec = home / "pipeline" / "spark-pipeline.yml"
    text = spec.read_text()
    own = {"file:///tmp/orders-pipeline": (home / "storage").as_uri(), "pulsar://localhost:6650": service_url}
    for theirs, ours in own.items():
        assert theirs in text, f"{spec} does not name {theirs}"
        text = text.replace(theirs, ours)
    spec.write_text(text)
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.driver.extraJavaOptions": SHORT_RUN,
        "spark.ui.enabled": "false",
    }
    command = [str(environment.folder / "bin" / "spark-pipelines"), "run"]
    command += [part for setting in settings.items() for part in ("--conf", "=".join(setting))]
    with Peer(service_url) as peer:
        peer.produce("large-orders", [])
        for run in range(2):
            numbers = range(run * _ROWS, (run + 1) * _ROWS)
            peer.produce("orders", [_order(number) for number in numbers], batch_size=100)
            subprocess.run(command, cwd=spec.parent, env=environment.variables(), check=True)
            wanted = Counter(_order(number) for number in range((run + 1) * _ROWS) if number % 200 >= _LARGE)
            assert Counter(peer.read_all("large-orders")) == wanted, f"run {run}: rows differ"


def _order(number: int) -> Record:
    value = {"order": number, "amount": number % 200}
    return Record(json.dumps(value).encode(), key=f"customer-{number % 7}")
