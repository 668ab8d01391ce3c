"""YARN's cluster mode, as docs/recipes.md has it: a copy whose executor and application master are killed.

A ResourceManager, two NodeManagers and HDFS run in one JVM (integration/java/MiniYarn.java); containers are
processes of this machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.broker.waiting import HANG, wait_until
from integration.deploy.environments import Environment, installed
from integration.deploy.killed_copies import NAMESPACE, SCRIPT, prepare
from integration.deploy.standalone import Daemon
from integration.deploy.submit import Submission
from integration.deploy.ways import packed_environment
from integration.docs import ROOT, blocks
from integration.helpers.peer import Peer, Record
from pulsar_spark_broker.jars import cache_folder, jars_of
from pulsar_spark_broker.java import java

_PROGRAM = ROOT / "integration" / "java" / "MiniYarn.java"
_ROWS, _PARTITIONS = 50_000, 4
_LIMIT = 3000  # rows of a micro-batch: so there are some to kill in
DELIVERIES = {"default": (), "transactional": ("sink.delivery=transactional",)}

EXECUTOR = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"


class MiniYarn:
    """The cluster; a context manager.

    Attributes:
        conf: the folder that HADOOP_CONF_DIR names.
    """

    def __init__(self, home: Path) -> None:
        self._home = home / "yarn"
        self._home.mkdir()
        self.conf = home / "conf"
        self._log = home / "yarn.log"

    def __enter__(self) -> MiniYarn:
        jars = jars_of(ROOT / "conf" / "yarn" / "jars.sha256", cache_folder())
        options = ["-Xmx900m", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        command = [java(), *options, "-cp", os.pathsep.join(map(str, jars)), str(_PROGRAM)]
        self._daemon = Daemon([*command, str(self._home), str(self.conf)], os.environ, self._log)
        try:
            wait_until((self.conf / "ready").exists)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._daemon.kill()
        # Containers have sessions of their own.
        for pid in self.containers(""):
            os.kill(pid, signal.SIGKILL)

    def containers(self, program: str) -> set[int]:
        """The process ids of the JVMs of containers that run a class, or of all processes of containers."""
        found = set()
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            is_here = any(str(self._home) in word for word in words) and str(_PROGRAM) not in words
            if is_here and (not program or (program in words and words[0].endswith("/java"))):
                found.add(int(file.parent.name))
        return found


def copy_on_yarn(home: Path, wheel: str, broker: StandaloneBroker) -> None:
    """Copy a topic once in each delivery; an executor is killed in each, then the application master.

    Raises:
        AssertionError: a row is missing, or there twice, or the application failed.
    """
    environment = installed(home / "spark", sys.executable, "pyspark>=4.3", "pandas<3")
    packed = packed_environment(home, wheel)
    prepare(broker)
    with MiniYarn(home) as yarn:
        for name, options in DELIVERIES.items():
            _copy(home / name, environment, packed, yarn, broker, options)
            print(
                f"yarn, {name}: {_ROWS} rows once, an executor and the application master killed", flush=True
            )


def _copy(
    home: Path,
    environment: Environment,
    packed: Path,
    yarn: MiniYarn,
    broker: StandaloneBroker,
    options: tuple[str, ...],
) -> None:
    home.mkdir()
    topic = f"persistent://{NAMESPACE}/{home.name}"
    copy = f"{topic}-copy"
    for name in (topic, copy):
        broker.admin.create_partitioned_topic(name, _PARTITIONS)
    records = [Record(b"%d" % number, key=f"key-{number % 97}") for number in range(_ROWS)]
    given = [
        broker.service_url,
        topic,
        copy,
        str(home),
        "default",
        f"maxMessagesPerTrigger={_LIMIT}",
        *options,
    ]
    script = Path(shutil.copy(SCRIPT, home))

    def copied() -> int:
        return int(broker.admin.partitioned_stats(copy)["msgInCounter"])

    def kill_one(program: str) -> None:
        """Kill a container at work; wait for another in its place, and for more rows."""
        before, so_far = yarn.containers(program), copied()
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: submission.is_running() and yarn.containers(program) - before, timeout=HANG)
        wait_until(lambda: submission.is_running() and copied() > so_far + _LIMIT, timeout=HANG)

    with Peer(broker.service_url) as peer:
        peer.produce(topic, records[: _ROWS // 2], batch_size=100)
        with Submission(
            environment,
            home,
            "yarn",
            script,
            *("--deploy-mode", "cluster", *_settings(environment, packed)),
            given=given,
            variables={"HADOOP_CONF_DIR": str(yarn.conf)},
        ) as submission:
            wait_until(lambda: submission.is_running() and copied() > _LIMIT, timeout=HANG)
            kill_one(EXECUTOR)
            peer.produce(topic, records[_ROWS // 2 :], batch_size=100)
            kill_one(MASTER)
            (home / "stop").touch()
            submission.finish()
        found = Counter(record.value for record in peer.read_all(copy))
    wanted = Counter(record.value for record in records)
    assert found == wanted, f"{(wanted - found).total()} missing, {(found - wanted).total()} too many"


def _settings(environment: Environment, packed: Path) -> list[str]:
    """The settings of the page, and those of this small cluster."""
    (page,) = (block for block in blocks(ROOT / "docs" / "recipes.md", "text") if "spark.yarn" in block.text)
    settings = dict(line.split(None, 1) for line in page.text.splitlines())
    archives = settings["spark.yarn.dist.archives"]
    settings["spark.yarn.dist.archives"] = f"{packed}#{archives.partition('#')[2]}"
    settings |= {
        "spark.yarn.jars": f"local:{environment.spark_home}/jars/*",
        "spark.executor.instances": "2",
        "spark.driver.memoryOverhead": "384m",
        "spark.executor.memoryOverhead": "384m",
        # All is on this machine; otherwise the address of a network interface is advertised.
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    }
    return [f"--conf={name}={value}" for name, value in settings.items()]
