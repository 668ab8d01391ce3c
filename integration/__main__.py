"""The project's own commands; each does all of its set-up by itself and needs only Python and Java.

    python3 -m integration demo     a stream from a real broker, through Spark, back to it
    python3 -m integration test     lint, types, and all tests; `test --pulsar VERSION` on another broker
    python3 -m integration bench    the benchmark against pulsar-client and Spark's own transport
    python3 -m integration chaos    long runs that cut, kill and restart
    python3 -m integration docs     the site of the documentation, into build/docs
    python3 -m integration deploy   a user's script on all kinds of clusters
    python3 -m integration coverage the unit tests, and how many statements they run
    python3 -m integration matrix   all versions that are claimed, in fresh environments
    python3 -m integration release  the wheel and the sdist, built and checked
    python3 -m integration long     all that `test` leaves out, for hours, with a summary
    python3 -m integration hostile  fuzzers of what a broker or a producer may send, with counts
    python3 -m integration mutmut   a mutation tool over the code that decides which rows are kept

The virtual environment is made once in ``.venv`` (or where PULSAR_SPARK_VENV says), of the exact files that
``conf/environment`` names, and renewed when that or setup.cfg changes. Only the standard library is imported
here: this runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent

_PYTEST = ["-m", "pytest", "-p", "no:cacheprovider"]
_SILENT = ["-p", "no:terminal", "-o", "addopts="]
# More processes than cores, since many tests wait; each takes 5 s of CPU to collect all tests.
_UNIT_TESTS = [*_PYTEST, "-n", "6", "--dist", "worksteal", "tests"]
# What needs no socket, no thread and no Spark that runs.
_WITHOUT_IO = ",".join(
    f"pulsar_spark/{place}"
    for place in (
        *("errors.py", "ids.py", "arrow/*", "wire/*", "values/*", "protocol/*", "client/encryption.py"),
        *(
            "client/writing/interceptors.py",
            "spark/options/*",
            "spark/plan/*",
            "spark/rows/*",
            "spark/sink/*",
        ),
    )
)
# What is installed: `all` holds `demo`; `build` is what builds packages that come as sources.
_LOCKS = ROOT / "conf" / "environment"
_BUILD, _DEMO, _ALL = "build", "demo", "all"

# Tests with a broker mostly wait. Those of one file, or with the same servers, stay together.
_SIDE_BY_SIDE = ["-n", "4", "--dist", "loadgroup"]


def main(arguments: list[str]) -> int:
    """Run one of the commands; returns the exit code."""
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    problem = missing_prerequisite()
    if problem is not None:
        print(f"integration: {problem}", file=sys.stderr)
        return 2
    command, *rest = arguments
    return COMMANDS[command](environment_python(_DEMO if command == "demo" else _ALL), rest)


def missing_prerequisite() -> str | None:
    """What this machine lacks, in words that say what to do; None when it has all."""
    if sys.version_info < (3, 10):  # noqa: UP036 - nothing has checked it before this line
        return "Python 3.10 or newer is needed; run this with a newer python3"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin") if java_home else shutil.which("java")
    if java is None:
        return "Java 17 or newer is needed: install a JDK or JRE, or set JAVA_HOME"
    return None


def environment_python(lock: str) -> str:
    """The python of the project's virtual environment, which is made or renewed where needed."""
    folder = Path(os.environ.get("PULSAR_SPARK_VENV", ROOT / ".venv"))
    python = folder / "bin" / "python"
    stamp = folder / "pulsar_spark.stamp"
    files = [ROOT / "setup.cfg", *(lock_file(name) for name in (_BUILD, _DEMO, _ALL))]
    state = hashlib.sha256(b"".join(file.read_bytes() for file in files) + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() in (f"{lock} {state}", f"{_ALL} {state}"):
        return str(python)
    print(f"integration: making the virtual environment in {folder}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for arguments in install_steps(lock):
        subprocess.run([*pip, "install", *arguments], check=True)
    subprocess.run([*pip, "check"], check=True)
    stamp.write_text(f"{lock} {state}")
    return str(python)


def lock_file(name: str) -> Path:
    """The file that says which exact files of packages are installed."""
    return _LOCKS / f"{name}.txt"


def install_steps(lock: str) -> list[list[str]]:
    """Arguments of ``pip install``, call by call; nothing is installed whose hash no lock names."""
    # A lock names all packages. With dependencies, pip 23.2 takes the newest version of a package that
    # another one needs with an extra, and then refuses it, since the lock names an older one.
    locked = ["--no-deps", "--require-hashes", "--requirement"]
    # What comes as sources is built with what is installed, not with what an index has today.
    here = ["--no-build-isolation", "--use-pep517"]
    return [
        [*locked, str(lock_file(_BUILD))],
        [*here, *locked, str(lock_file(lock))],
        [*here, "--no-deps", "--editable", str(ROOT)],
    ]


def run(python: str, *arguments: str, **environment: str) -> int:
    """Run the environment's python from the project's root, as one process group with this one."""
    variables = {**os.environ, **_variables(python), **environment}
    return subprocess.run([python, *arguments], cwd=ROOT, env=variables, check=False).returncode


def become(python: str, *arguments: str) -> NoReturn:
    """As :func:`run`, in place of this process: signals and Ctrl-C go to what runs, and to nobody else."""
    os.chdir(ROOT)
    os.execve(python, [python, *arguments], {**os.environ, **_variables(python)})


def _variables(python: str) -> dict[str, str]:
    return {
        # Spark looks for its Python on the PATH, where the environment is not.
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        # Without bytecode each of hundreds of Pythons would compile the package, and pytest all tests.
        "PYTHONDONTWRITEBYTECODE": "",
    }


def demo(python: str, rest: list[str]) -> int:
    """Run the demonstration."""
    become(python, "-m", "integration.demo", *rest)


def test(python: str, rest: list[str]) -> int:
    """Run all checks and tests, or with arguments those that pytest is given; ``--pulsar`` comes first."""
    if rest[:1] == ["--pulsar"] and len(rest) > 1:
        os.environ["PULSAR_SPARK_TEST_PULSAR"] = rest[1]
        rest = rest[2:]
    if rest:
        return run(python, *_PYTEST, *rest)
    spark_home = str(Path(python).parent.parent / "spark")
    steps = (
        ("bytecode of Spark", lambda: run(python, "-m", "integration.spark_bytecode", spark_home)),
        ("lint", lambda: run(python, "-m", "ruff", "check", ".")),
        ("format", lambda: run(python, "-m", "ruff", "format", "--check", ".")),
        (
            "types, docs, and bytecode of tests and of the broker",
            lambda: side_by_side(
                lambda: run(python, "-m", "mypy"),
                lambda: docs(python, []),
                # Else each process of the tests would compile all tests.
                lambda: run(python, *_PYTEST, *_SILENT, "--collect-only", "tests", "integration"),
                lambda: run(python, "-m", "pulsar_spark_broker.class_archive"),
            ),
        ),
        ("unit tests", lambda: unit_tests(python)),
        ("versions", lambda: run(python, "-m", "integration.matrix", "corners")),
        (
            "integration tests",
            lambda: run(python, *_PYTEST, *_SIDE_BY_SIDE, "integration", SPARK_HOME=spark_home),
        ),
    )
    for name, step in steps:
        print(f"integration: {name}", flush=True)
        if step() != 0:
            print(f"integration: {name} failed", file=sys.stderr)
            return 1
    return 0


def side_by_side(*steps: Callable[[], int]) -> int:
    """Run steps that use one core each; returns 1 if one failed."""
    with ThreadPoolExecutor() as pool:
        return int(any(list(pool.map(lambda step: step(), steps))))


def unit_tests(python: str) -> int:
    """Run the unit tests by themselves; check how many statements they run where counting costs nothing."""
    if sys.version_info >= (3, 12):  # with sys.monitoring; `long` counts with each Python
        return coverage(python, [])
    return run(python, *_UNIT_TESTS)


def coverage(python: str, rest: list[str]) -> int:
    """Run the unit tests; fail unless they run 80 % of the statements, and 90 % of those without I/O."""
    counter = {"COVERAGE_CORE": "sysmon"} if sys.version_info >= (3, 12) else {}
    report = ("-m", "coverage", "report", "--format=total")
    return (
        run(python, *_UNIT_TESTS, "--cov=pulsar_spark", "--cov-report=", *rest, **counter)
        or run(python, *report, "--fail-under=80")
        or run(python, *report, "--fail-under=90", f"--include={_WITHOUT_IO}")
    )


def bench(python: str, rest: list[str]) -> int:
    """Run the benchmark."""
    return run(python, "-m", "integration.bench", *rest)


def chaos(python: str, rest: list[str]) -> int:
    """Run the long fault tests."""
    return run(python, "-m", "integration.chaos", *rest)


def docs(python: str, rest: list[str]) -> int:
    """Build the site; a link or a picture that leads nowhere is an error."""
    strict = ("-W", "--keep-going", "-E", "-q")
    return run(python, "-m", "sphinx", *strict, "-b", "html", *rest, "docs", "build/docs")


def deploy(python: str, rest: list[str]) -> int:
    """Try all ways to deploy."""
    return run(python, "-m", "integration.deploy", *rest)


def matrix(python: str, rest: list[str]) -> int:
    """Try all versions."""
    return run(python, "-m", "integration.matrix", "full", *rest)


def release(python: str, rest: list[str]) -> int:
    """Build the files of a release."""
    return run(python, "-m", "integration.release", *rest)


def long(python: str, rest: list[str]) -> int:
    """Run all that CI leaves out."""
    return run(python, "-m", "integration.long", *rest)


def mutmut(python: str, rest: list[str]) -> int:
    """Run the mutation tool, over all that decides or over some files."""
    return run(python, "-m", "integration.mutation", *rest)


def hostile(python: str, rest: list[str]) -> int:
    """Run the fuzzers."""
    return run(python, "-m", "integration.hostile", *rest)


COMMANDS = {
    "demo": demo,
    "test": test,
    "bench": bench,
    "chaos": chaos,
    "coverage": coverage,
    "docs": docs,
    "deploy": deploy,
    "matrix": matrix,
    "hostile": hostile,
    "long": long,
    "mutmut": mutmut,
    "release": release,
}

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
