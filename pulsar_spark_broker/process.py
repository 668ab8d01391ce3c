"""One run of a JVM of Pulsar's, under the supervisor."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pulsar_spark_broker.jars import kept_classes, pulsar_version
from pulsar_spark_broker.java import java_for

_CONF = Path(__file__).resolve().parent / "conf"

# What Pulsar's own start script opens to the libraries the broker uses.
_OPENED = (
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)


@dataclass(frozen=True, slots=True)
class Jvm:
    """How Java runs a broker. Sizes are as Java writes them; the defaults suit benchmarks too.

    Attributes:
        heap: the most its heap may grow to; 256m is enough for tests, 96m the least that worked.
        direct_memory: the most that messages in flight may take; 128m is enough for tests, 64m the least.
        optimize: whether code that runs often is compiled a second time, for speed, and timers are exact.
            Without it a start and an idle broker take half the processor time (6 s instead of 12 s, 2 %
            instead of 4 % of a core), and a broker under load works more slowly.
        options: more options of Java.
    """

    heap: str = "512m"
    direct_memory: str = "512m"
    optimize: bool = True
    options: tuple[str, ...] = ()


DEFAULT_JVM = Jvm()
# Enough for tests, and small beside Spark; benchmarks want more.
TEST_JVM = Jvm(heap="256m", direct_memory="128m", optimize=False)


def broker_command(jars: list[Path], *, folder: Path, config: Path, bookie_port: int, jvm: Jvm) -> list[str]:
    """Return the command line of a standalone broker that keeps its data in `folder`."""
    # Pulsar 5 has no such option: its bookie takes any port.
    bookie = [] if pulsar_version().startswith("5.") else [f"--bookkeeper-port={bookie_port}"]
    return [
        *java_command(jars, folder=folder, jvm=jvm),
        "org.apache.pulsar.PulsarStandaloneStarter",
        f"--config={config}",
        "--num-bookies=1",
        *bookie,
        f"--metadata-dir={folder / 'metadata'}",
        f"--bookkeeper-dir={folder / 'bookkeeper'}",
        "--no-functions-worker",
        "--no-stream-storage",
    ]


def java_command(jars: list[Path], *, folder: Path, jvm: Jvm) -> list[str]:
    """Return the command line up to the name of the class that is to run; files go into `folder`."""
    # 327 long paths go into a file, or `ps` would be unreadable.
    class_path = folder / "classpath"
    class_path.write_text('-cp "' + ":".join(map(str, jars)) + '"')
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    java = java_for(pulsar_version())
    timers = Path(__file__).with_name("coarse_timers.py")
    return [
        *([] if jvm.optimize else [sys.executable, "-I", "-S", str(timers)]),
        java,
        *kept_classes(java, jars),
        *jvm.options,
        f"-Xmx{jvm.heap}",
        f"-XX:MaxDirectMemorySize={jvm.direct_memory}",
        *([] if jvm.optimize else ["-XX:TieredStopAtLevel=1"]),
        "-XX:+ExitOnOutOfMemoryError",
        # Nothing may stay in the system's temporary folder after a kill -9.
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={scratch}",
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile={_CONF / 'log4j2.xml'}",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        f"@{class_path}",
    ]


class Restartable:
    """Runs a JVM, and after its end another one."""

    _process: BrokerProcess | None = None

    @property
    def pid(self) -> int:
        """Process id of the JVM that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its JVM was started and has not ended."""
        return self._process is not None and self._process.running

    def kill(self) -> None:
        """Kill the JVM (SIGKILL) and wait until it is gone. Data stays."""
        if self._process:
            self._process.kill()


class BrokerProcess:
    """A JVM that was started; it ends with `stop`, `kill`, or this Python process."""

    def __init__(self, command: list[str], *, log: Path, orphan_folder: Path | None) -> None:
        """Start `command`, its output appended to `log`.

        `orphan_folder` is what the supervisor removes if this process dies before the JVM.
        """
        supervisor = Path(__file__).with_name("supervisor.py")
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(supervisor), str(orphan_folder or ""), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                # A session of its own: Ctrl-C in a terminal reaches only the launcher, which stops the rest.
                start_new_session=True,
            )
        assert self._supervisor.stdout is not None
        first_line = self._supervisor.stdout.readline()
        self.pid = int(first_line) if first_line else 0

    @property
    def running(self) -> bool:
        """Whether the JVM has not ended."""
        return self._supervisor.poll() is None

    def wait(self) -> int:
        """Wait until the JVM ends by itself; return its exit status."""
        return self._supervisor.wait()

    def stop(self, timeout: float) -> None:
        """Ask the broker to stop; kill it when it has not after `timeout` seconds."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill the JVM (SIGKILL) and wait until it is gone. Does nothing when it has ended."""
        self._signal(signal.SIGKILL)
        self._supervisor.wait()
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _signal(self, number: int) -> None:
        pipe = self._supervisor.stdin
        assert pipe is not None
        if pipe.closed:
            return
        with contextlib.suppress(BrokenPipeError):  # It ended by itself.
            pipe.write(b"%d\n" % number)
            pipe.flush()
