"""A Kafka broker of one node, from its published jars, and the jars of Spark's Kafka source."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from integration.broker import Jvm
from integration.broker.waiting import wait_until
from integration.helpers.local_spark import ROOT
from pulsar_spark_broker.jars import cache_folder, jars_of
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.process import BrokerProcess, java_command

_CONF = ROOT / "conf" / "kafka"
_JVM = Jvm(heap="1g")  # as Kafka's own start script has it
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"  # any identifier
_READY = b"Kafka Server started"


def server_properties(port: int, controller_port: int, data: Path) -> str:
    """What configures a node that is broker and controller, and listens on the loopback interface only."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "auto.create.topics.enable": "false",
        # The system's sizes, as Pulsar's broker has. Kafka's own are those of one or two loopback packets.
        "socket.receive.buffer.bytes": -1,
        "socket.send.buffer.bytes": -1,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def spark_jars() -> str:
    """Spark's Kafka source and what it needs, as the setting ``spark.jars`` names them."""
    return ",".join(map(str, jars_of(_CONF / "spark.sha256", cache_folder())))


class KafkaBroker:
    """Keeps its files in a new folder; a context manager.

    Attributes:
        servers: what clients use.
    """

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.servers = f"127.0.0.1:{port}"
        folder.mkdir()
        self._folder = folder
        self._log = folder / "kafka.log"
        self._config = folder / "server.properties"
        self._config.write_text(server_properties(port, free_port(), folder / "data"))

    def __enter__(self) -> KafkaBroker:
        with self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c") as formatting:
            assert formatting.wait() == 0, self._log.read_text()[-3000:]
        self._process = process = self._run("kafka.Kafka")
        try:
            wait_until(lambda: not process.running or _READY in self._log.read_bytes())
            assert process.running, self._log.read_text()[-3000:]
        except BaseException:
            process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def _run(self, *words: str) -> BrokerProcess:
        command = java_command(
            jars_of(_CONF / "server.sha256", cache_folder()), folder=self._folder, jvm=_JVM
        )
        return BrokerProcess([*command, *words, str(self._config)], log=self._log, orphan_folder=self._folder)
