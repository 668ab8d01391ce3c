"""A whole Pulsar broker as a child process, from the published jars: no Docker, no installation."""

from __future__ import annotations

import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pulsar_spark_broker import EmbeddedBrokerError
from pulsar_spark_broker.jars import broker_jars
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.process import DEFAULT_JVM, BrokerProcess, Jvm, Restartable, broker_command

if TYPE_CHECKING:
    from typing_extensions import Self

_DEFAULTS = Path(__file__).resolve().parent / "conf" / "standalone.conf"

# Seconds that no machine is too slow for: a start that takes longer hangs.
_START_TIMEOUT = 300.0
_REQUEST_TIMEOUT = 30.0

# What streams need to be written effectively once and in transactions.
ONCE_SETTINGS = {"brokerDeduplicationEnabled": "true", "transactionCoordinatorEnabled": "true"}

# Settings that name a port to listen on. The first two always get one, the others when they are set to 0.
_PLAIN_PORTS = ("brokerServicePort", "webServicePort")
_TLS_PORTS = ("brokerServicePortTls", "webServicePortTls")

# How the broker's log says that a start failed (its JVM may hang after that), and that a port was taken.
_FAILED = b"Failed to start pulsar service"
_CLASH = "Address already in use"


class StandaloneBroker(Restartable):
    """A standalone broker with one bookie, on free ports of 127.0.0.1.

        with StandaloneBroker(settings={"maxMessageSize": "102400"}) as broker:
            client = pulsar.Client(broker.service_url)

    It may be stopped or killed and started again: same data, same ports. Several may run side by side.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        jvm: Jvm = DEFAULT_JVM,
        start_timeout: float = _START_TIMEOUT,
    ) -> None:
        """Prepare a broker; `start` or `with` starts it.

        Args:
            settings: broker settings that override conf/standalone.conf. A TLS port set to `0`
                is replaced by a free one.
            data_dir: where data stays after the end; by default a temporary folder that `close` removes.
            jvm: what its Java may use.
            start_timeout: seconds until a broker that does not answer counts as failed.
        """
        self._settings = default_settings() | dict(settings or {})
        self._given_data_dir = data_dir
        self._jvm = jvm
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def service_url(self) -> str:
        """What clients connect to."""
        return f"pulsar://127.0.0.1:{self._ports['brokerServicePort']}"

    @property
    def admin_url(self) -> str:
        """The admin service."""
        return f"http://127.0.0.1:{self._ports['webServicePort']}"

    @property
    def tls_service_url(self) -> str:
        """The same as service_url with TLS, if settings name its port."""
        return f"pulsar+ssl://127.0.0.1:{self._ports['brokerServicePortTls']}"

    @property
    def tls_admin_url(self) -> str:
        """The same as admin_url with TLS, if settings name its port."""
        return f"https://127.0.0.1:{self._ports['webServicePortTls']}"

    @property
    def admin_token(self) -> str | None:
        """The broker's own client token for the admin service; None if settings name none."""
        scheme, _, token = self._settings.get("brokerClientAuthenticationParameters", "").partition(":")
        return token if scheme == "token" else None

    def start(self) -> None:
        """Start the broker and wait until it is healthy and public/default exists.

        Raises:
            EmbeddedBrokerError: when it ends or does not answer in time, with the end of its log; or without
                jars.
        """
        jars = broker_jars()
        for attempts_left in (2, 1, 0):
            first = not self._ports
            self._ports = self._ports or self._choose_ports()
            try:
                self._start_once(jars)
                return
            except EmbeddedBrokerError:
                # Someone else took a port between our choice and the broker's bind.
                if not (first and attempts_left and _CLASH in self.log_tail(400)):
                    raise
                self._ports = {}
                # A bookie goes on with the port that its data names.
                self._remove_temporary_folder()

    def stop(self, timeout: float = 30.0) -> None:
        """Stop the broker as an operator would (SIGTERM), by force after `timeout` seconds. Data stays."""
        if self._process:
            self._process.stop(timeout)

    def close(self) -> None:
        """End the broker and remove its temporary folder. It is killed where no data stays: this is fast."""
        if self._given_data_dir:
            self.stop()
        else:
            self.kill()
        self._remove_temporary_folder()

    def wait(self) -> int:
        """Wait until the broker ends by itself; return its exit status."""
        assert self._process is not None
        return self._process.wait()

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the broker's log, those of earlier starts included; empty without one."""
        log = self._folder and self._folder / "broker.log"
        if not log or not log.exists():
            return ""
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    def _choose_ports(self) -> dict[str, int]:
        """Return the number of every port: what settings say, else a free one."""
        names = [*_PLAIN_PORTS, *(name for name in _TLS_PORTS if name in self._settings), "bookie"]
        return {name: int(self._settings.get(name, "0")) or free_port() for name in names}

    def _start_once(self, jars: list[Path]) -> None:
        folder = self._prepared_folder()
        config = folder / "broker.conf"
        listening = {name: str(port) for name, port in self._ports.items() if name != "bookie"}
        settings = self._settings | listening
        log = folder / "broker.log"
        for file in (config, log):  # the settings may hold secrets, and the broker logs some of them
            file.touch(mode=0o600)
            file.chmod(0o600)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = broker_command(
            jars, folder=folder, config=config, bookie_port=self._ports["bookie"], jvm=self._jvm
        )
        orphan_folder = None if folder == self._given_data_dir else folder
        logged_before = log.stat().st_size
        self._process = BrokerProcess(command, log=log, orphan_folder=orphan_folder)
        try:
            self._wait_until_healthy(self._process, lambda: _FAILED in log.read_bytes()[logged_before:])
        except BaseException:  # Ctrl-C included: nothing may stay behind.
            self._process.kill()
            raise

    def _prepared_folder(self) -> Path:
        if self._folder is None:
            self._folder = self._given_data_dir or Path(tempfile.mkdtemp(prefix="pulsar-broker-"))
            self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def _remove_temporary_folder(self) -> None:
        if self._folder and self._folder != self._given_data_dir:
            shutil.rmtree(self._folder)
            self._folder = None

    def _wait_until_healthy(self, process: BrokerProcess, failed: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not self._is_healthy():
            if failed() or not process.running:
                raise self._failure("the broker failed to start")
            if time.monotonic() > deadline:
                raise self._failure(f"the broker did not answer within {self._start_timeout:g} s")
            time.sleep(0.1)

    def _is_healthy(self) -> bool:
        """Whether the broker can write and read a message, and the namespace public/default exists."""
        try:
            return self._get("brokers/health") == "ok" and '"public/default"' in self._get(
                "namespaces/public"
            )
        except OSError:
            return False

    def _get(self, path: str) -> str:
        headers = {"Authorization": f"Bearer {self.admin_token}"} if self.admin_token else {}
        request = urllib.request.Request(f"{self.admin_url}/admin/v2/{path}", headers=headers)
        # It is on this machine: never through a proxy for the outside world.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_REQUEST_TIMEOUT) as response:
            return str(response.read().decode())

    def _failure(self, what: str) -> EmbeddedBrokerError:
        return EmbeddedBrokerError(f"{what}; the end of its log:\n{self.log_tail()}")


def default_settings() -> dict[str, str]:
    """Return the settings of conf/standalone.conf."""
    lines = (line.strip() for line in _DEFAULTS.read_text().splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}
