"""``pulsar_spark broker``: run a Pulsar broker on this machine, in the foreground."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pulsar_spark_broker import EmbeddedBrokerError
from pulsar_spark_broker.jars import VERSION_VARIABLE, known_versions
from pulsar_spark_broker.process import DEFAULT_JVM, Jvm
from pulsar_spark_broker.standalone import ONCE_SETTINGS, StandaloneBroker

_DESCRIPTION = """
Run a Pulsar broker on this machine, with deduplication and transactions, until Ctrl-C or SIGTERM. It listens
at 127.0.0.1 only, and prints its two addresses when it is ready. The first start fetches 242 MB of jars.
"""


class _StopRequest(BaseException):
    """SIGINT or SIGTERM came."""


def add_command(commands: Any) -> None:
    """Add ``broker`` to the subparsers of a command line."""
    parser = commands.add_parser("broker", help="run a broker on this machine", description=_DESCRIPTION)
    any_free = "0 takes a free one (default: %(default)s)"
    parser.add_argument("--port", type=int, default=6650, help=f"for clients; {any_free}")
    parser.add_argument("--web-port", type=int, default=8080, help=f"of the admin service; {any_free}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep data here (default: temporary)")
    parser.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the broker, as in its standalone.conf; may be repeated",
    )
    parser.add_argument("--pulsar", choices=known_versions(), help="version (default: the first)")
    jvm = DEFAULT_JVM
    parser.add_argument("--heap", default=jvm.heap, help="Java heap (default: %(default)s)")
    parser.add_argument(
        "--direct-memory", default=jvm.direct_memory, help="message buffers (default: %(default)s)"
    )
    parser.set_defaults(run=lambda parsed: sys.exit(_run(parsed)))


def _run(options: argparse.Namespace) -> int:
    """Run the broker until it ends or a signal comes; returns the exit code."""
    if options.pulsar:
        os.environ[VERSION_VARIABLE] = options.pulsar
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _request_stop)
    ports = {"brokerServicePort": str(options.port), "webServicePort": str(options.web_port)}
    broker = StandaloneBroker(
        ports | ONCE_SETTINGS | dict(options.settings),
        data_dir=options.data,
        jvm=Jvm(options.heap, options.direct_memory),
    )
    try:
        for option, port in (("--port", options.port), ("--web-port", options.web_port)):
            _require_free(option, port)
        print("starting Pulsar; the first start fetches its jars", file=sys.stderr, flush=True)
        broker.start()
        kept = f"data stays in {options.data}" if options.data else "its data goes with it"
        print(f"Pulsar is ready; Ctrl-C stops it, and {kept}", file=sys.stderr, flush=True)
        print(broker.service_url, broker.admin_url, sep="\n", flush=True)
        status = broker.wait()
        print(f"the broker ended with status {status}:\n{broker.log_tail()}", file=sys.stderr)
        return 1
    except EmbeddedBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    except _StopRequest:
        return 0
    finally:
        broker.close()


def _require_free(option: str, port: int) -> None:
    """Raise EmbeddedBrokerError where somebody listens at a port of this machine."""
    with socket.socket() as probe:
        # As the broker does: connections of an earlier one that have just ended are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EmbeddedBrokerError(
                f"port {port} cannot be had ({error.strerror}): another Pulsar may be running. Stop it, or "
                f"use it, or name another port with {option}; 0 takes a free one"
            ) from None


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _request_stop(number: int, frame: FrameType | None) -> NoReturn:
    # A second signal must not interrupt the stop that the first one began. With SIG_IGN, Python would print
    # an error about one that has come already.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _stay)
    raise _StopRequest


def _stay(number: int, frame: FrameType | None) -> None:
    """Do nothing: the broker is being stopped."""
