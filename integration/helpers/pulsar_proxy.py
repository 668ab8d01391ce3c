"""Pulsar's own proxy, from its published jars, in front of one broker."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from integration.broker import Jvm
from integration.broker.waiting import wait_until
from integration.helpers.local_spark import ROOT
from pulsar_spark_broker.jars import cache_folder, jars_of
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.process import BrokerProcess, java_command

_JVM = Jvm(heap="128m", direct_memory="128m", optimize=False)
_SUMS = ROOT / "conf" / "proxy" / "jars.sha256"
_READY = b"Server started at end point"  # its web service, after all else


class PulsarProxy:
    """It may be killed and started again on its port; a context manager.

    Attributes:
        service_url: what clients use.
    """

    def __init__(self, service_url: str, admin_url: str, folder: Path) -> None:
        """Prepare a proxy of the broker at `service_url`; its files go into `folder`."""
        port = free_port()
        self.service_url = f"pulsar://127.0.0.1:{port}"
        self._folder = folder
        settings = {
            "brokerServiceURL": service_url,
            "brokerWebServiceURL": admin_url,
            "bindAddress": "127.0.0.1",
            "servicePort": port,
            "webServicePort": free_port(),
            "brokerProxyAllowedIPAddresses": "127.0.0.1",
            "brokerProxyAllowedTargetPorts": "*",
            # It would want a metadata store to look for brokers that are up.
            "checkActiveBrokers": "false",
        }
        self._config = folder / "proxy.conf"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: BrokerProcess | None = None

    def start(self) -> None:
        """Start it and wait until it serves."""
        command = java_command(jars_of(_SUMS, cache_folder()), folder=self._folder, jvm=_JVM)
        starter = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
        log = self._folder / "proxy.log"
        log.touch()
        before = log.stat().st_size
        process = BrokerProcess([*command, starter, "-c", str(self._config)], log=log, orphan_folder=None)
        self._process = process
        try:
            wait_until(lambda: not process.running or _READY in log.read_bytes()[before:])
            assert process.running, log.read_text()[-3000:]
        except BaseException:
            process.kill()
            raise

    def kill(self) -> None:
        """Kill it with -9."""
        assert self._process is not None
        self._process.kill()

    def __enter__(self) -> PulsarProxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
