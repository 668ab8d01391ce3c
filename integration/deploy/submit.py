"""``spark-submit`` as a user calls it, and what its script said."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.broker.waiting import HANG
from integration.deploy.environments import Environment

# What spares time and memory: a short run is over before the second compiler has paid.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "WARN",
}


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of it.

    Attributes:
        status: the exit status.
        out: the standard output.
        err: the standard error output.
    """

    status: int
    out: str
    err: str

    @property
    def said(self) -> Any:
        """The last line of the output, which is JSON."""
        assert self.status == 0, f"status {self.status}\n{self.out[-3000:]}\n{self.err[-6000:]}"
        return json.loads(self.out.splitlines()[-1])


def submit(
    environment: Environment,
    home: Path,
    master: str,
    script: Path,
    *arguments: str,
    given: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Submitted:
    """Run spark-submit to its end, in the folder ``home``.

    Args:
        environment: of the driver, and of executors that share its machine.
        home: a folder for all that is written.
        master: as Spark names it.
        script: the user's.
        arguments: of spark-submit, such as ``--packages``.
        given: what the script is given.
        variables: environment variables, besides or in place of the environment's.
    """
    places = {
        "spark.jars.ivy": str(home / "ivy"),
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    conf = [f"--conf={name}={value}" for name, value in (_SETTINGS | places).items()]
    program = str(environment.spark_home / "bin" / "spark-submit")
    done = subprocess.run(
        [program, "--master", master, *conf, *arguments, str(script), *given],
        cwd=home,
        env=environment.variables() | dict(variables or {}),
        capture_output=True,
        text=True,
        timeout=5 * HANG,
        check=False,
    )
    return Submitted(done.returncode, done.stdout, done.stderr)
