"""The versions that the package claims: corners for every test run, and a longer matrix with a real Spark.

    python -m integration.matrix corners    unit tests with the oldest libraries, and with the newest Python
    python -m integration.matrix full       wheel and sdist in fresh environments, with a broker and Spark

A Python that this machine does not have is left out, with a line that says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.cluster import TEST_JVM
from integration.deploy.environments import Environment, build_sdist, build_wheel, installed
from integration.deploy.ways import by_pip
from integration.local_spark import ROOT
from integration.peer import Peer, Record

_TESTING = ("cryptography", "hypothesis", "pytest", "pytest-randomly")
# What needs no Spark, which is too large to be installed for each run of the tests.
_WITHOUT_SPARK = ("tests/wire", "tests/protocol", "tests/client", "tests/test_errors.py", "tests/test_ids.py")
# What the committed code is generated with belongs to development, not to what users have.
_ALL = ("tests", "--ignore=tests/test_generated.py")
_OLDEST = ("pyarrow==18.0.*", "numpy==1.26.*", "protobuf==5.29.*", "crc32c==2.7.*")


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


# The development environment has the newest of all, and protobuf 7.
CORNERS = (Versions("3.10", _OLDEST), Versions("3.13", ("protobuf==6.*",)))

# pyspark 4.3 needs Python 3.11.
FULL = (
    Versions("3.10", ("pyspark[sql]==4.2.*", *_OLDEST)),
    Versions("3.11", ("pyspark[sql]==4.2.*", "protobuf==6.*")),
    Versions("3.12", ("pyspark[sql]==4.2.*", "protobuf==7.*")),
    Versions("3.13", ("pyspark[sql]==4.2.*",)),
    Versions("3.11", ("pyspark[sql]==4.3.*", *_OLDEST)),
    Versions("3.12", ("pyspark[sql]==4.3.*", "protobuf==6.*")),
    Versions("3.13", ("pyspark[sql]==4.3.*",)),
)


def main(arguments: Sequence[str]) -> int:
    """Run one of the two; returns the exit code."""
    if list(arguments) not in (["corners"], ["full"]):
        print(__doc__, file=sys.stderr)
        return 2
    return corners() if arguments[0] == "corners" else full()


def corners() -> int:
    """Run the unit tests of what is below Spark at the corners, side by side."""
    with ThreadPoolExecutor(len(CORNERS)) as pool:
        return max(pool.map(_corner, CORNERS))


def full() -> int:
    """Install each combination with pip, and run the unit tests and a user's script with it."""
    with tempfile.TemporaryDirectory() as name, StandaloneBroker(jvm=TEST_JVM) as broker:
        home = Path(name)
        wheel, sdist = build_wheel(home / "wheel"), build_sdist(home / "sdist")
        for number, versions in enumerate(FULL):
            # Both are what users may get; they take turns.
            package = (wheel, sdist)[number % 2]
            python = find_python(versions.python)
            if python is None:
                _tell(versions, "left out: it is not on this machine")
                continue
            folder = home / str(number)
            environment = installed(folder / "environment", python, str(package), *versions.libraries)
            topic = f"persistent://public/default/matrix-{number}"
            records = [Record(b"%d" % n, key=f"key-{n % 7}") for n in range(1000)]
            with Peer(broker.service_url) as peer:
                peer.produce(topic, records, batch_size=100)
                by_pip(environment, folder, "local[2]", broker.service_url, topic)
                for copy in ("batch", "stream"):
                    # One topic without partitions, and one task: the order is that of the rows.
                    assert peer.read_all(f"{topic}-{copy}") == records, f"{versions}: rows differ"
            environment.pip("pandas<3", *_TESTING, *versions.libraries)
            if _unit_tests(environment, versions, _ALL) != 0:
                return 1
            shutil.rmtree(folder)
    return 0


def find_python(version: str) -> str | None:
    """The program of a Python: this one, on the PATH, or of pyenv; None when there is none that runs."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")]
    for program in filter(None, known):
        # One of pyenv's on the PATH may be there and not run.
        if subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(program)
    return None


def _corner(versions: Versions) -> int:
    python = find_python(versions.python)
    if python is None:
        _tell(versions, "left out: it is not on this machine")
        return 0
    with tempfile.TemporaryDirectory() as name:
        requirements = ("pyarrow", "numpy", "protobuf", "crc32c", *_TESTING, *versions.libraries)
        environment = installed(Path(name) / "environment", python, *requirements)
        return _unit_tests(environment, versions, _WITHOUT_SPARK)


def _unit_tests(environment: Environment, versions: Versions, tests: Sequence[str]) -> int:
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment.variables() | {"PYTHONDONTWRITEBYTECODE": "1"},
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
