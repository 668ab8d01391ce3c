"""The ways of docs/deploying.md, each with the same script of a user."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.broker.waiting import wait_until
from integration.deploy.environments import Environment, build_wheel, installed
from integration.deploy.standalone import Daemon
from integration.deploy.submit import Submission
from integration.helpers.secrets_driver import documented_redaction
from pulsar_spark.cli import package
from pulsar_spark_broker.ports import free_port

SECRET = b"shown-nowhere"  # the token of the script
APP = Path(__file__).with_name("app.py")
USES = Path(__file__).with_name("uses.py")
COPY_STREAM = Path(__file__).with_name("copy_stream.py")

# Runs the script on a master; given are environment, a folder for its files, master, service URL and topic.
Way = Callable[[Environment, Path, str, str, str], Any]


def by_packages(environment: Environment, home: Path, master: str, service_url: str, topic: str) -> Any:
    """``--packages``, from a folder laid out as a Maven repository."""
    package.build(home / "repository")
    repository = (home / "repository").as_uri()
    arguments = ("--packages", package.coordinates(), "--repositories", repository)
    return _submit(environment, home, master, service_url, topic, *arguments)


def by_py_files(environment: Environment, home: Path, master: str, service_url: str, topic: str) -> Any:
    """``--py-files`` with the jar."""
    jar = package.build(home / "repository")
    return _submit(environment, home, master, service_url, topic, "--py-files", str(jar))


def by_archives(environment: Environment, home: Path, master: str, service_url: str, topic: str) -> Any:
    """``--archives`` with a packed environment, without pyspark, which executors have with their Spark."""
    packed = packed_environment(home, str(build_wheel(home / "wheel")))
    # The planner of streams takes the second, too, so its path has to lead somewhere here as well.
    own = Environment(home / "environment")
    python = {"PYSPARK_DRIVER_PYTHON": str(own.python), "PYSPARK_PYTHON": "./environment/bin/python"}
    arguments = ("--archives", f"{packed}#environment")
    return _submit(environment, home, master, service_url, topic, *arguments, variables=python)


def packed_environment(home: Path, wheel: str) -> Path:
    """Make ``environment`` in a folder, with all but pyspark, and pack it."""
    libraries = ("pyarrow", "pandas<3", "protobuf", "crc32c", "msgspec", "venv-pack")
    own = installed(home / "environment", sys.executable, *libraries)
    own.pip("--no-deps", wheel)
    packed = home / "environment.tar.gz"
    pack = [str(own.folder / "bin" / "venv-pack"), "--prefix", str(own.folder), "--output", str(packed)]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    return packed


def by_connect(
    environment: Environment, home: Path, master: str, service_url: str, topic: str, script: Path = APP
) -> Any:
    """A Spark Connect server that has the package; the script is a client of it."""
    script = Path(shutil.copy(script, home))
    with connect_server(environment, home, master) as address:
        done = subprocess.run(
            [str(environment.python), str(script), service_url, topic, str(home / "checkpoint")],
            cwd=home,
            env=environment.variables() | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_REMOTE": address},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    if script.name == APP.name:
        files = [file for file in home.rglob("*") if file.is_file() and file != script]
        # There was something to hide.
        assert any("events" in file.parts and b"pulsar.client.****" in file.read_bytes() for file in files)
        assert [file for file in files if SECRET in file.read_bytes()] == []
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def connect_server(environment: Environment, home: Path, master: str) -> Iterator[str]:
    """Run a Spark Connect server that hides secrets; its log and events go into `home`. Yield its address."""
    port = free_port()
    # Spark 4.0 and 4.1 have no sbin/start-connect-server.sh in pip's package.
    program = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = str(environment.spark_home / "bin" / "spark-submit")
    command = [submit, "--class", program, "--master", master]
    settings = {"spark.connect.grpc.binding.port": str(port), "spark.local.dir": str(home / "local")}
    (home / "events").mkdir()
    settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": (home / "events").as_uri()}
    settings |= {"spark.eventLog.compress": "false", **documented_redaction()}
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    variables = environment.variables() | {"SPARK_LOCAL_IP": "127.0.0.1"}
    server = Daemon([*command, *conf], variables, home / "server.log")
    try:
        wait_until(lambda: b"server started at" in server.log.read_bytes(), interval=0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()


def by_pip(
    environment: Environment, home: Path, master: str, service_url: str, topic: str, script: Path = APP
) -> Any:
    """``pip install`` for every Python."""
    return _submit(environment, home, master, service_url, topic, script=script)


def _submit(
    environment: Environment,
    home: Path,
    master: str,
    service_url: str,
    topic: str,
    *arguments: str,
    variables: dict[str, str] | None = None,
    script: Path = APP,
) -> Any:
    """Run the script; returns what it said, see its first lines."""
    # Away from the checkout, which would be found first.
    script = Path(shutil.copy(script, home))
    given = (service_url, topic, str(home / "checkpoint"))
    with Submission(
        environment, home, master, script, *arguments, given=given, variables=variables
    ) as submission:
        return json.loads(submission.finish().splitlines()[-1])
