"""A Pulsar cluster from the same jars as the standalone broker: ZooKeeper, bookies and brokers, each a JVM.

Unlike a standalone broker it redirects lookups, moves topics from broker to broker, and has storage
that outlives a bookie. All of it listens on 127.0.0.1 only.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from integration.broker.admin import Admin
from integration.broker.waiting import wait_until
from pulsar_spark_broker import EmbeddedBrokerError
from pulsar_spark_broker.jars import broker_jars
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.process import BrokerProcess, Jvm, Restartable, java_command
from pulsar_spark_broker.standalone import default_settings

# Six JVMs take about 2 GiB together.
_ZOOKEEPER_JVM = Jvm(heap="64m", direct_memory="32m", optimize=False)
_BOOKIE_JVM = Jvm(heap="96m", direct_memory="128m", optimize=False)
_BROKER_JVM = Jvm(heap="256m", direct_memory="128m", optimize=False)

# How long ZooKeeper believes that one is alive which says nothing, in ms: what it owns is nobody's meanwhile.
_SESSION_TIMEOUT = "8000"

_ZOOKEEPER = {
    "tickTime": "2000",
    "clientPortAddress": "127.0.0.1",
    "admin.enableServer": "false",
    "maxClientCnxns": "0",
    # What a kill -9 leaves in the system's memory is enough.
    "forceSync": "no",
}

# What standalone.conf says to a bookie.
_OF_STANDALONE = (
    *("listeningInterface", "ledgerStorageClass", "journalSyncData", "journalMaxGroupWaitMSec"),
    *("journalFlushWhenQueueEmpty", "nettyMaxFrameSizeBytes"),
)

_BOOKIE = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider",
    "zkTimeout": _SESSION_TIMEOUT,
    # Of 128 MiB; the defaults are shares of it that do not fit.
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": "8388608",
    # A full disk of a developer's machine is no concern of a test.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
}

_BROKER = {
    "clusterName": "cluster",
    "metadataStoreSessionTimeoutMillis": _SESSION_TIMEOUT,
    # Each entry is on both bookies, and one receipt is enough: writing goes on without the other one. A new
    # ledger wants both.
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "1",
    "bookkeeper_delayEnsembleChange": "true",
    # Bundles are given to any broker, and move or split only when a test says so.
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "defaultNumberOfNamespaceBundles": "4",
    "transactionCoordinatorEnabled": "true",
    "numIOThreads": "2",
    "managedLedgerCacheSizeMB": "16",
}

_COORDINATORS = 3

# What Pulsar's start script says to a bookie, so that it knows Pulsar's way to ZooKeeper.
_DRIVER = (
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver"
)


class Server(Restartable):
    """One JVM of a cluster, on ports of its own. It may be killed and started again on its data.

    Args:
        is_ready: asked again and again after a start.
        orphan_folder: what is removed when this Python process dies.
    """

    def __init__(
        self, folder: Path, command: list[str], is_ready: Callable[[], bool], orphan_folder: Path
    ) -> None:
        self._log = folder / "log"
        self._command = command
        self._is_ready = is_ready
        self._orphan_folder = orphan_folder

    def launch(self) -> None:
        """Start the JVM and do not wait for it."""
        self._process = BrokerProcess(self._command, log=self._log, orphan_folder=self._orphan_folder)

    def await_ready(self) -> None:
        """Wait until it serves.

        Raises:
            EmbeddedBrokerError: it ended, or does not serve in time; with the end of its log.
        """
        try:
            wait_until(lambda: not self.running or self._is_ready(), interval=0.1)
        except TimeoutError:
            raise self._failure("does not serve") from None
        if not self.running:
            raise self._failure("ended")

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        self.await_ready()

    def stop(self) -> None:
        """Ask the JVM to end, as an operator does; it is killed if it has not ended after a minute."""
        assert self._process is not None
        self._process.stop(60.0)

    def _failure(self, what: str) -> EmbeddedBrokerError:
        lines = self._log.read_text(errors="replace").splitlines()[-40:]
        return EmbeddedBrokerError(
            f"{self._log.parent.name} {what}; the end of its log:\n" + "\n".join(lines)
        )


class ClusterBroker(Server):
    """A broker of a cluster.

    Attributes:
        name: ``host:port`` as the cluster calls it.
        service_url: of this broker alone.
        tls_address: ``host:port`` of this broker alone for clients with TLS.
        admin: requests to this broker; it sends those for another one's topics there.
    """

    def __init__(
        self, folder: Path, command: list[str], orphan_folder: Path, ports: dict[str, int], token: str | None
    ) -> None:
        self.name = f"127.0.0.1:{ports['webServicePort']}"
        self.service_url = f"pulsar://127.0.0.1:{ports['brokerServicePort']}"
        self.tls_address = f"127.0.0.1:{ports.get('brokerServicePortTls', 0)}"
        self.admin = Admin(f"http://{self.name}", token=token)
        super().__init__(folder, command, self.admin.ready, orphan_folder)


class PulsarCluster:
    """A cluster that is up within `with`; nothing of it stays.

    with PulsarCluster() as cluster:
        client = pulsar.Client(cluster.service_url)
        cluster.brokers[0].kill()
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, brokers: int = 3, bookies: int = 2
    ) -> None:
        """Prepare a cluster; `settings` of brokers override those of tests."""
        self._settings = default_settings() | _BROKER | dict(settings or {})
        self._counts = brokers, bookies
        self.folder = Path(tempfile.gettempdir())
        self._metadata = f"127.0.0.1:{free_port()}"
        self.zookeeper: Server | None = None
        self.brokers: list[ClusterBroker] = []
        self.bookies: list[Server] = []

    @property
    def service_url(self) -> str:
        """All brokers, any of which a client may ask first."""
        return "pulsar://" + ",".join(broker.service_url.partition("://")[2] for broker in self.brokers)

    @property
    def tls_service_url(self) -> str:
        """All brokers, for clients with TLS; settings of brokers name a certificate."""
        return "pulsar+ssl://" + ",".join(broker.tls_address for broker in self.brokers)

    @property
    def admin(self) -> Admin:
        """Admin requests to a broker that runs."""
        return next(broker.admin for broker in self.brokers if broker.running)

    def broker(self, service_url: str) -> ClusterBroker:
        """The broker that a lookup names."""
        return next(broker for broker in self.brokers if broker.service_url == service_url)

    def __enter__(self) -> PulsarCluster:
        self.folder = Path(tempfile.mkdtemp(prefix="pulsar-cluster-"))
        try:
            self._start(broker_jars())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _start(self, jars: list[Path]) -> None:
        self.zookeeper = self._new_zookeeper(jars)
        self.zookeeper.start()
        brokers, bookies = self._counts
        self.brokers = [self._new_broker(jars, number) for number in range(brokers)]
        self.bookies = [self._new_bookie(jars, number) for number in range(bookies)]
        self._set_up_metadata(jars)
        # Those of one kind start side by side.
        for group in (self.bookies, self.brokers):
            for server in group:
                server.launch()
            for server in group:
                server.await_ready()
        wait_until(self.admin.healthy)

    def _close(self) -> None:
        for server in (*self.brokers, *self.bookies, self.zookeeper):
            if server is not None:
                server.kill()
        shutil.rmtree(self.folder)

    def _new_zookeeper(self, jars: list[Path]) -> Server:
        folder, port = self._new_folder("zookeeper"), self._metadata.rpartition(":")[2]
        config = _write(folder, _ZOOKEEPER | {"dataDir": str(folder / "data"), "clientPort": port})
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*java_command(jars, folder=folder, jvm=_ZOOKEEPER_JVM), main, str(config)]
        return Server(folder, command, lambda: _listens(int(port)), self.folder)

    def _new_bookie(self, jars: list[Path], number: int) -> Server:
        folder, port = self._new_folder(f"bookie-{number}"), free_port()
        settings = {name: self._settings[name] for name in _OF_STANDALONE} | {
            "bookiePort": str(port),
            "metadataServiceUri": f"metadata-store:zk:{self._metadata}",
            "journalDirectories": str(folder / "journal"),
            "ledgerDirectories": str(folder / "ledgers"),
        }
        config = _write(folder, _BOOKIE | settings)
        main = "org.apache.bookkeeper.server.Main"
        command = [*java_command(jars, folder=folder, jvm=_BOOKIE_JVM), _DRIVER, main, "--conf", str(config)]
        return Server(folder, command, lambda: _listens(port), self.folder)

    def _new_broker(self, jars: list[Path], number: int) -> ClusterBroker:
        folder = self._new_folder(f"broker-{number}")
        names = ["brokerServicePort", "webServicePort"]
        if "tlsCertificateFilePath" in self._settings:
            names.append("brokerServicePortTls")
        ports = {name: free_port() for name in names}
        settings = {
            "metadataStoreUrl": f"zk:{self._metadata}",
            "configurationMetadataStoreUrl": f"zk:{self._metadata}",
            **{name: str(port) for name, port in ports.items()},
        }
        config = _write(folder, self._settings | settings)
        main = "org.apache.pulsar.PulsarBrokerStarter"
        command = [*java_command(jars, folder=folder, jvm=_BROKER_JVM), main, "--broker-conf", str(config)]
        scheme, _, token = self._settings.get("brokerClientAuthenticationParameters", "").partition(":")
        return ClusterBroker(folder, command, self.folder, ports, token if scheme == "token" else None)

    def _set_up_metadata(self, jars: list[Path]) -> None:
        """Write what ZooKeeper must hold before anything else starts."""
        folder = self._new_folder("setup")
        first = self.brokers[0]
        self._run(
            [
                *java_command(jars, folder=folder, jvm=_BROKER_JVM),
                "org.apache.pulsar.PulsarClusterMetadataSetup",
                f"--cluster={self._settings['clusterName']}",
                f"--metadata-store=zk:{self._metadata}",
                f"--configuration-metadata-store=zk:{self._metadata}",
                f"--web-service-url={first.admin.url}",
                f"--broker-service-url={first.service_url}",
                f"--initial-num-transaction-coordinators={_COORDINATORS}",
            ],
            folder,
        )

    def _run(self, command: Sequence[str], folder: Path) -> None:
        log = folder / "log"
        with BrokerProcess(list(command), log=log, orphan_folder=self.folder) as process:
            if process.wait() != 0:
                raise EmbeddedBrokerError(
                    f"the cluster's metadata could not be written:\n{log.read_text()[-4000:]}"
                )

    def _new_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder


def _write(folder: Path, settings: Mapping[str, str]) -> Path:
    config = folder / "conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return config


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
