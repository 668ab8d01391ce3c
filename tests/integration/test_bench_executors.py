"""How costs grow with executors, and connections that the kernel lists."""

import os
import socket
from pathlib import Path

from integration.bench import executors
from integration.bench.executors import Figures
from integration.bench.sockets import connections


def figures(direction, count, cpu, most, mib):
    return Figures(direction, count, rate=1_000_000.0, cpu=cpu, processes=count, connections=most, mib=mib)


def test_the_fewest_and_the_most_executors_are_compared():
    measured = [
        figures("read", 8, 1.5, 2, 150.0),
        figures("write", 8, 0.9, 1, 200.0),
        figures("read", 1, 1.0, 1, 100.0),
        figures("read", 2, 9.0, 9, 900.0),
        figures("write", 1, 1.0, 1, 200.0),
    ]
    assert executors.growth_lines(measured) == [
        "read, 1 to 8 executors: CPU a row x 1.50, connections of a worker 1 to 2, memory of a worker x 1.50",
        "write, 1 to 8 executors: CPU a row x 0.90, connections of a worker 1 to 1, "
        "memory of a worker x 1.00",
    ]
    assert executors.growth_lines(measured[2:3]) == []
    assert measured[0].line() == (
        "8 executors, read: 1,000,000 rows/s, 1.50 us of CPU a row; workers with connections: 8, "
        "connections of each: at most 2; a worker has at most 150 MiB"
    )


def test_connections_to_a_port_are_counted_by_process():
    here = Path("/proc") / str(os.getpid())
    ended = Path("/proc/0")
    with socket.socket() as listening, socket.socket() as other:
        for each in (listening, other):
            each.bind(("127.0.0.1", 0))
            each.listen()
        port = listening.getsockname()[1]
        assert connections([here], port) == []
        with (
            socket.create_connection(listening.getsockname()),
            socket.create_connection(listening.getsockname()),
            socket.create_connection(other.getsockname()),
        ):
            assert connections([here, ended, here], port) == [2, 2]
