"""What a client must not leave behind in this process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext

from integration.broker.waiting import wait_until
from integration.helpers.proxy import Proxy


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that all threads and file descriptors (sockets) that are new since the beginning go away."""
    threads, descriptors = set(threading.enumerate()), len(_descriptors())
    yield
    try:
        wait_until(lambda: set(threading.enumerate()) <= threads and len(_descriptors()) <= descriptors)
    except TimeoutError:
        new_threads = [thread.name for thread in set(threading.enumerate()) - threads]
        raise AssertionError(
            f"left: threads {new_threads}; {descriptors} file descriptors before, now {_descriptors()}"
        ) from None


def _descriptors() -> list[str]:
    """Returns this process's open files, and its sockets with their peers.

    Left out are the sockets to Spark's JVM, because Py4J opens connections whenever Python frees an object of
    the JVM, in any thread, and keeps them; and those of proxies, which brokers of other tests use.
    """
    spark_ports = _spark_ports()
    found = []
    for each in Path("/dev/fd").iterdir():
        with suppress(OSError):  # it has just been closed
            target = str(each.readlink())
            ends = _ends(int(each.name)) if target.startswith("socket:") else []
            if int(each.name) not in Proxy.descriptors and not spark_ports & {end[1] for end in ends}:
                found.append(f"{target} {ends or ''}".strip())
    return found


def _ends(descriptor: int) -> list[tuple[str, int]]:
    """Returns local and remote address of a TCP connection; empty for any other socket."""
    with socket.socket(fileno=os.dup(descriptor)) as own:
        try:
            return [own.getsockname()[:2], own.getpeername()[:2]] if own.family != socket.AF_UNIX else []
        except OSError:
            return []


def _spark_ports() -> set[int]:
    """Returns the ports by which this process and its JVM call each other, if there is one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return set()
    callback = gateway.get_callback_server()
    ports = {gateway.gateway_parameters.port}
    return ports if callback is None else ports | {callback.get_listening_port()}
