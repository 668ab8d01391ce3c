"""The versions that the package claims: corners for every test run, and a longer matrix.

    python -m integration.matrix corners    the oldest Python, Spark and libraries, and the newest Python
    python -m integration.matrix full       wheel and sdist with every Spark, in fresh environments

With a Spark, a user's script reads and writes in a batch and in a stream, with a real broker, and another one
copies a topic in a stream while its driver is killed. A Python that this machine does not have is a failure.
"""

from __future__ import annotations

import configparser
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.deploy.environments import Environment, build_sdist, build_wheel, installed
from integration.deploy.killed_copies import copy_over_kills, prepare
from integration.deploy.ways import USES, by_pip
from integration.helpers.cluster import TEST_JVM
from integration.helpers.local_spark import ROOT
from integration.helpers.peer import Peer, Record
from integration.helpers.transactions import SETTINGS

# What leans on protobuf; on any library, and needs no Spark; what makes rows of it, and entries of rows.
_PROTOBUF = ("tests/arrow", "tests/wire", "tests/values/protobuf")
_BYTES = ("tests/arrow", "tests/wire", "tests/values")
_READING = (
    *("decode", "decode_corrupt", "decode_limits", "decoded_messages", "message_range", "stored_run"),
    *("typed_values", "entry_range", "entry_range_losses", "entry_range_moved"),
)
_ROWS = (
    *(f"tests/client/reading/test_{name}.py" for name in _READING),
    "tests/spark/rows",
    "tests/protocol/writing",
    *(f"tests/client/writing/test_topic_writer{part}.py" for part in ("", "_memory", "_partitions")),
)
# Not: the generator's output and the project's own commands, which need more of the development environment.
_ALL = ("tests", "--ignore=tests/test_generated.py", "--ignore=tests/integration")
# Of pytest: the two corners run side by side, and some of their tests wait.
_PROCESSES = "3"
_OLDEST = ("pyarrow==18.0.*", "numpy==1.26.*", "protobuf==5.29.6", "crc32c==2.7.*", "msgspec==0.19.*")


@dataclass(frozen=True, slots=True)
class Versions:
    """One combination.

    Attributes:
        python: as in the name of its program.
        libraries: what pip is told besides the package itself.
    """

    python: str
    libraries: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((f"Python {self.python}", *self.libraries))


# pyspark 4.3 needs Python 3.11.
FULL = (
    Versions("3.10", ("pyspark[sql]==4.0.*", *_OLDEST)),
    Versions("3.12", ("pyspark[sql]==4.0.*", "protobuf==6.*")),
    Versions("3.11", ("pyspark[sql]==4.1.*", *_OLDEST)),
    Versions("3.13", ("pyspark[sql]==4.1.*",)),
    Versions("3.10", ("pyspark[sql]==4.2.*", *_OLDEST)),
    Versions("3.11", ("pyspark[sql]==4.2.*", "protobuf==6.*")),
    Versions("3.12", ("pyspark[sql]==4.2.*", "protobuf==7.*")),
    Versions("3.13", ("pyspark[sql]==4.2.*",)),
    Versions("3.11", ("pyspark[sql]==4.3.*", *_OLDEST)),
    Versions("3.12", ("pyspark[sql]==4.3.*", "protobuf==6.*")),
    Versions("3.13", ("pyspark[sql]==4.3.*",)),
)

# The development environment has the newest of all, and protobuf 7.
_OLDEST_CORNER = FULL[0]
_NEWEST_CORNER = Versions("3.13", ("protobuf==6.*",))


def main(arguments: Sequence[str]) -> int:
    """Run one of the two; returns the exit code."""
    if list(arguments) not in (["corners"], ["full"]):
        print(__doc__, file=sys.stderr)
        return 2
    return corners() if arguments[0] == "corners" else full()


def corners() -> int:
    """Try the oldest corner with Spark, and the newest without, side by side; returns the exit code."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as pool:
        home = Path(name)
        newest = pool.submit(without_spark, _NEWEST_CORNER, home / "newest")
        with StandaloneBroker(SETTINGS, jvm=TEST_JVM) as broker:
            prepare(broker)
            oldest = with_spark(
                _OLDEST_CORNER,
                home / "oldest",
                build_wheel(home / "wheel"),
                broker,
                _BYTES + _ROWS,
            )
        return exit_code([oldest, newest.result()])


def full() -> int:
    """Try each combination with Spark, one after the other, to the last; returns the exit code."""
    with tempfile.TemporaryDirectory() as name, StandaloneBroker(SETTINGS, jvm=TEST_JVM) as broker:
        home = Path(name)
        prepare(broker)
        # Both are what users may get; they take turns.
        packages = build_wheel(home / "wheel"), build_sdist(home / "sdist")
        return exit_code(
            [
                with_spark(versions, home / str(number), packages[number % 2], broker, _ALL)
                for number, versions in enumerate(FULL)
            ]
        )


def exit_code(codes: Iterable[int]) -> int:
    """1 if any of several programs failed, else 0; the code of one that a signal ended is negative."""
    return 1 if any(codes) else 0


def with_spark(
    versions: Versions, folder: Path, package: Path, broker: StandaloneBroker, tests: Sequence[str]
) -> int:
    """Install a package and a Spark, run a user's script and unit tests; returns the exit code.

    Args:
        folder: for the environment and the files of a run; it is removed.
        tests: what pytest is told.
    """
    python = find_python(versions.python)
    if python is None:
        return _missing(versions)
    environment = installed(folder / "environment", python, str(package), *versions.libraries)
    with ThreadPoolExecutor() as pool:
        copies = pool.submit(_copies, environment, versions, folder, broker)
        # Not into the environment: the script has what users have.
        environment.pip("--target", str(folder / "tools"), *tools_of_tests())
        codes = [_unit_tests(environment, versions, tests, PYTHONPATH=str(folder / "tools"))]
        codes.append(copies.result())
    shutil.rmtree(folder)
    return exit_code(codes)


def _copies(environment: Environment, versions: Versions, folder: Path, broker: StandaloneBroker) -> int:
    """Run users' scripts that copy a topic in a batch and in streams; returns the exit code."""
    began = time.monotonic()
    topic = f"persistent://public/default/matrix-{folder.name}"
    records = [Record(b"%d" % n, key=f"key-{n % 7}") for n in range(1000)]
    with Peer(broker.service_url) as peer:
        peer.produce(topic, records, batch_size=100)
        by_pip(environment, folder, "local[2]", broker.service_url, topic)
        for copy in ("batch", "stream"):
            # One topic without partitions, and one task: the order is that of the rows.
            if peer.read_all(f"{topic}-{copy}") != records:
                _tell(versions, f"the rows of the {copy} differ from what was written")
                return 1
    _tell(versions, f"a batch and a stream: {len(records)} rows each, in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    uses = by_pip(environment, folder, "local[2,4]", broker.service_url, topic, USES)
    _tell(versions, f"{', '.join(uses)}: in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    try:
        place = folder / f"killed-{folder.name}"
        copy_over_kills(environment, broker, place, "limits", rows=20_000, kills=1, chance=random.Random())
    except (AssertionError, TimeoutError) as error:
        _tell(versions, f"the copy over a kill -9 failed: {error}")
        return 1
    _tell(versions, f"a stream whose driver was killed: each row once, in {time.monotonic() - began:.0f} s")
    return 0


def without_spark(versions: Versions, folder: Path) -> int:
    """Install libraries but no Spark, run the unit tests of protobuf; returns the exit code."""
    python = find_python(versions.python)
    if python is None:
        return _missing(versions)
    libraries = ("pyarrow", "numpy", "protobuf", "crc32c", "msgspec")
    requirements = (*libraries, *tools_of_tests(), *versions.libraries)
    # Most of what pip would compile is not used.
    environment = installed(folder / "environment", python, "--no-compile", *requirements)
    return _unit_tests(environment, versions, _PROTOBUF)


def tools_of_tests() -> list[str]:
    """The requirements of the dev extra that unit tests need."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    names = (
        *("cryptography", "fastavro", "hypothesis", "openlineage-python"),
        *("pytest", "pytest-randomly", "pytest-xdist", "pyyaml"),
    )
    lines = config["options.extras_require"]["dev"].splitlines()
    return [line for line in lines if line.partition(" ")[0] in names]


def find_python(version: str) -> str | None:
    """The program of a Python such as ``3.12``: this one, on the PATH, or of pyenv; None when none runs."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")]
    for program in filter(None, known):
        # One of pyenv's on the PATH may be there and not run.
        if subprocess.run([str(program), "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(program)
    return None


def _missing(versions: Versions) -> int:
    _tell(
        versions,
        f"failed: no python{versions.python} on the PATH or in pyenv. Install it, or run the tests alone: "
        "python3 -m integration test tests integration",
    )
    return 1


def _unit_tests(environment: Environment, versions: Versions, tests: Sequence[str], **variables: str) -> int:
    side_by_side = ("-n", _PROCESSES, "--dist", "worksteal")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *side_by_side, *tests]
    done = subprocess.run(
        [str(environment.python), *command],
        cwd=ROOT,
        env=environment.variables() | {"PULSAR_SPARK_HYPOTHESIS_PROFILE": "few"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    _tell(versions, "\n".join(lines[-1:] if done.returncode == 0 else lines))
    return done.returncode


def _tell(versions: Versions, text: str) -> None:
    print(f"{versions}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
