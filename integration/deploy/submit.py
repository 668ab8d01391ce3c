"""``spark-submit`` as a user calls it, and what its script said."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from integration.broker.waiting import HANG
from integration.deploy.environments import Environment
from integration.helpers.local_spark import SHORT_RUN

_SETTINGS = {
    "spark.driver.extraJavaOptions": SHORT_RUN,
    "spark.executor.extraJavaOptions": SHORT_RUN,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "WARN",
}


class Submission:
    """A running spark-submit; it ends with the ``with`` block."""

    def __init__(
        self,
        environment: Environment,
        home: Path,
        master: str,
        script: Path,
        *arguments: str,
        given: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        """Start it in the folder ``home``.

        Args:
            environment: of the driver, and of executors that share its machine.
            arguments: of spark-submit, such as ``--packages``.
            variables: environment variables, besides or in place of the environment's.
            address: at which executors reach the driver.
        """
        self.home = home
        places = {
            "spark.driver.host": address,
            "spark.jars.ivy": str(home / "ivy"),
            "spark.local.dir": str(home / "local"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        }
        conf = [f"--conf={name}={value}" for name, value in (_SETTINGS | places).items()]
        program = str(environment.spark_home / "bin" / "spark-submit")
        with (home / "out.log").open("wb") as out, (home / "err.log").open("wb") as err:
            self._process = subprocess.Popen(
                [program, "--master", master, *conf, *arguments, str(script), *given],
                cwd=home,
                env=environment.variables() | {"SPARK_LOCAL_IP": address} | dict(variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """True; an AssertionError with the end of its log when it has ended."""
        assert self._process.poll() is None, self._complaint()
        return True

    def finish(self) -> str:
        """Wait for its end; returns its standard output.

        Raises:
            AssertionError: it failed, with the end of its log.
        """
        assert self._process.wait(5 * HANG) == 0, self._complaint()
        return (self.home / "out.log").read_text()

    def __enter__(self) -> Submission:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _complaint(self) -> str:
        # What the script itself says on standard error comes out on standard output (Spark's PythonRunner).
        said = "".join((self.home / name).read_text()[-6000:] for name in ("err.log", "out.log"))
        return f"spark-submit ended with {self._process.returncode}: {said}"
