"""Keep the classes of a broker as Java has loaded them (AppCDS), so that later brokers start sooner."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from pulsar_spark_broker.jars import broker_jars, class_archive, pulsar_version
from pulsar_spark_broker.java import java_for
from pulsar_spark_broker.process import TEST_JVM
from pulsar_spark_broker.standalone import StandaloneBroker

_TIMEOUT = 120.0  # seconds, in which Java writes the file
_STOPPED = 128 + signal.SIGTERM


def make_class_archive() -> None:
    """Run a broker once to make the file, unless there is one; takes some 13 s. Those of other jars go.

    Raises:
        EmbeddedBrokerError: the broker did not start.
    """
    archive = class_archive(java_for(pulsar_version()), broker_jars())
    if archive.exists():
        return
    part = archive.with_name(f"{archive.name}.{os.getpid()}")
    try:
        with StandaloneBroker(jvm=replace(TEST_JVM, options=(f"-XX:ArchiveClassesAtExit={part}",))) as broker:
            broker.stop(_TIMEOUT)
            is_whole = broker.wait() == _STOPPED  # Java crashes on a file that was cut
        if is_whole and part.exists():  # not every Java can make one
            part.rename(archive)
            for other in set(archive.parent.glob("classes-*.jsa")) - {archive}:
                other.unlink(missing_ok=True)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    make_class_archive()
