"""Spark's standalone cluster: a master and workers as processes of their own, on this machine.

Where the system lets us, each worker has a network namespace of its own, with a loopback of its own, and does
not see the driver's files: as on machines of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from integration.broker.waiting import wait_until
from integration.deploy.environments import Environment
from pulsar_spark_broker.ports import free_port

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs.

    Attributes:
        enter: what a command there begins with.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """Where master, driver and broker are, and where workers can be.

    Attributes:
        address: of the master, the driver and the broker, as workers reach them.
        places: for workers.
    """

    address: str
    places: Sequence[Place]


class Daemon:
    """One of Spark's own long-lived processes, and all that it starts."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it and all that it has started, at once: as when a machine loses its power."""
        for pid in self._session():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # ended by itself
        self._process.wait()

    def _session(self) -> list[int]:
        """The processes of its session: Spark's Python workers leave its process group."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(folder.name)) == self._process.pid:
                    found.append(int(folder.name))
            except ProcessLookupError:
                continue  # ended meanwhile
        return found


class StandaloneSpark:
    """A running cluster, which ends with the ``with`` block.

    Attributes:
        address: of the master and the driver.
    """

    def __init__(self, environment: Environment, home: Path, network: Network) -> None:
        """Start it, each worker with two cores; wait until all workers have come."""
        self._environment, self._home, self._network = environment, home, network
        self.address = network.address
        self._port, self._web = free_port(), free_port()
        listen = ("--host", network.address, "--port", str(self._port), "--webui-port", str(self._web))
        self._master = Daemon(self._program(_MASTER, *listen), environment.variables(), home / "master.log")
        self._workers: list[Daemon] = []
        try:
            wait_until(lambda: self._alive_workers() == 0, interval=0.2)
            self._workers.extend(map(self._start_worker, range(len(network.places))))
            wait_until(lambda: self._alive_workers() == len(self._workers), interval=0.2)
        except BaseException:
            self._close()
            raise

    @property
    def master_url(self) -> str:
        """For ``--master``."""
        return f"spark://{self._network.address}:{self._port}"

    def replace_worker(self, number: int) -> None:
        """Kill a worker and its executors with -9, and start another in its place."""
        self._workers[number].kill()
        self._workers[number] = self._start_worker(number)

    def __enter__(self) -> StandaloneSpark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for daemon in (*self._workers, self._master):
            daemon.kill()

    def _start_worker(self, number: int) -> Daemon:
        place = self._network.places[number]
        folder = self._home / f"worker-{number}"
        folder.mkdir(exist_ok=True)
        options = ("--host", place.address, "--webui-port", "0", "--cores", "2", "--memory", "1g")
        command = self._program(_WORKER, *options, "--work-dir", str(folder), self.master_url)
        log = self._home / f"worker-{number}.log"
        return Daemon([*place.enter, *command], self._environment.variables(), log)

    def _program(self, kind: str, *arguments: str) -> list[str]:
        return [str(self._environment.spark_home / "bin" / "spark-class"), kind, *arguments]

    def _alive_workers(self) -> int | None:
        """How many workers the master sees; None before it answers."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:{self._web}/json/") as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return None


@contextmanager
def shared_network(workers: int) -> Iterator[Network]:
    """All on this machine's loopback."""
    yield Network("127.0.0.1", [Place()] * workers)


@contextmanager
def separate_network(workers: int, hidden: Path) -> Iterator[Network]:
    """A network namespace for each worker, joined by a bridge, in which the folder ``hidden`` is empty.

    Raises:
        subprocess.CalledProcessError: this user or this system cannot make namespaces.
    """
    name = f"ps{os.getpid() % 100_000}"
    subnet = f"10.213.{os.getpid() % 250}"
    with ExitStack() as stack:
        _ip(f"link add {name} type bridge")
        stack.callback(_ip, f"link del {name}")
        _ip(f"addr add {subnet}.1/24 dev {name}")
        _ip(f"link set {name} up")
        places = []
        for number in range(workers):
            space, address = f"{name}w{number}", f"{subnet}.{number + 2}"
            _ip(f"netns add {space}")
            stack.callback(_ip, f"netns del {space}")
            _ip(f"link add {space} type veth peer name eth0 netns {space}")
            _ip(f"link set {space} master {name} up")
            _ip(f"-n {space} addr add {address}/24 dev eth0")
            _ip(f"-n {space} link set eth0 up")
            _ip(f"-n {space} link set lo up")
            # `ip netns exec` gives it mounts of its own too.
            hide = f'mount -t tmpfs none "{hidden}" && exec "$@"'
            places.append(Place(address, ("ip", "netns", "exec", space, "sh", "-c", hide, "sh")))
        yield Network(f"{subnet}.1", places)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)
