"""Try all ways of docs/deploying.md, in fresh environments with what it names and nothing else.

python -m integration.deploy [WAY...]

WAY ``pipeline`` runs examples/pipeline; ``delta``, ``iceberg`` and ``yarn`` are those of docs/recipes.md;
``notebooks`` runs docs/quickstart.md in Jupyter.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from integration.broker import StandaloneBroker
from integration.deploy.environments import Environment, build_wheel, installed
from integration.deploy.lakes import DELTA, ICEBERG, run_and_kill
from integration.deploy.notebooks import run_notebooks
from integration.deploy.pipeline import run_twice
from integration.deploy.standalone import StandaloneSpark, shared_network
from integration.deploy.ways import by_archives, by_connect, by_packages, by_py_files
from integration.deploy.yarn import copy_on_yarn
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer, Record
from pulsar_spark_broker.standalone import ONCE_SETTINGS

_LOCAL, _LOCAL_CLUSTER, _STANDALONE = "local[2]", "local-cluster[2,1,512]", "standalone"

# What runs the script, the master, and whether the environment has the package.
_Way = tuple[Callable[[Environment, Path, str, str, str], Any], str, bool]
WAYS: dict[str, _Way] = {
    "packages-local": (by_packages, _LOCAL, False),
    "packages-local-cluster": (by_packages, _LOCAL_CLUSTER, False),
    "packages-standalone": (by_packages, _STANDALONE, False),
    "py-files-standalone": (by_py_files, _STANDALONE, False),
    "archives-standalone": (by_archives, _STANDALONE, False),
    "connect-local": (by_connect, _LOCAL, True),
}
# They make their own environment; given are a folder for their files, the wheel and the broker.
PROGRAMS: dict[str, Callable[[Path, str, StandaloneBroker], None]] = {
    "pipeline": lambda home, wheel, broker: run_twice(home, wheel, broker.service_url),
    "delta": lambda home, wheel, broker: run_and_kill(DELTA, home, wheel, broker.service_url),
    "iceberg": lambda home, wheel, broker: run_and_kill(ICEBERG, home, wheel, broker.service_url),
    "yarn": copy_on_yarn,
    "notebooks": run_notebooks,
}


def main(arguments: Sequence[str]) -> int:
    """Try the ways that are named, or all; returns the exit code."""
    chosen = list(arguments) or [*WAYS, *PROGRAMS]
    if not set(chosen) <= {*WAYS, *PROGRAMS}:
        print(__doc__, "WAY:", *WAYS, *PROGRAMS, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        wheel = str(build_wheel(home / "wheel"))
        _try_ways([way for way in chosen if way in WAYS], home, wheel)
        for program in (name for name in chosen if name in PROGRAMS):
            began = time.monotonic()
            (home / program).mkdir()
            with StandaloneBroker(ONCE_SETTINGS, jvm=TEST_JVM) as broker:
                PROGRAMS[program](home / program, wheel, broker)
            print(f"{program}: passed in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def _try_ways(ways: Sequence[str], home: Path, wheel: str) -> None:
    if not ways:
        return
    # pyspark warns of newer pandas.
    bare = installed(home / "bare", sys.executable, "pyspark[sql]>=4.2", "pandas<3")
    full = installed(home / "full", sys.executable, wheel, "pyspark[connect]>=4.2", "pandas<3", "venv-pack")
    with StandaloneBroker(jvm=TEST_JVM) as broker:
        for number, way in enumerate(ways):
            began = time.monotonic()
            topic = f"persistent://public/default/deploy-{number}"
            folder = home / way
            folder.mkdir()
            said = _try(WAYS[way], bare, full, folder, broker.service_url, topic)
            print(f"{way}: passed in {time.monotonic() - began:.0f} s", flush=True)
            for side in ("driver", "executor"):
                print(f"    {side}: pulsar_spark from {said[side]['pulsar_spark']}", flush=True)


def _try(way: _Way, bare: Environment, full: Environment, folder: Path, service_url: str, topic: str) -> Any:
    run, master, has_package = way
    records = [Record(b"%d" % number, key=f"key-{number % 7}") for number in range(1000)]
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(service_url))
        peer.produce(topic, records, batch_size=100)
        if master == _STANDALONE:
            network = stack.enter_context(shared_network(2))
            # Its workers have no more than pyspark: an archive brings its own Python.
            master = stack.enter_context(StandaloneSpark(bare, folder, network)).master_url
        said = run(full if has_package else bare, folder, master, service_url, topic)
        for copy in ("batch", "stream"):
            assert Counter(peer.read_all(f"{topic}-{copy}")) == Counter(records), f"{copy}: rows differ"
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
