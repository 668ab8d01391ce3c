"""Run a standalone Pulsar broker in the foreground until Ctrl-C or SIGTERM.

    python -m integration.broker [--data DIR] [--set key=value]... [--heap 512m] [--direct-memory 512m]

Run it from the root of the checkout. It needs Python 3.10, Java 17 and, for the first start only, Maven
(`mvn`) or pyspark, and a network. The first start fetches 242 MB of jars.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from integration.broker.errors import BrokerError
from integration.broker.process import DEFAULT_JVM, Jvm
from integration.broker.standalone import StandaloneBroker


class _StopRequest(BaseException):
    """SIGINT or SIGTERM came."""


def main() -> int:
    options = _parser().parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _request_stop)
    broker = StandaloneBroker(
        dict(options.settings),
        data_dir=options.data,
        jvm=Jvm(options.heap, options.direct_memory),
    )
    try:
        broker.start()
        print(broker.service_url, broker.admin_url, sep="\n", flush=True)
        status = broker.wait()
        print(f"the broker ended with status {status}:\n{broker.log_tail()}", file=sys.stderr)
        return 1
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    except _StopRequest:
        return 0
    finally:
        broker.close()


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m integration.broker", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep data here (default: temporary)")
    parser.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting of conf/broker/standalone.conf; may be repeated",
    )
    jvm = DEFAULT_JVM
    parser.add_argument("--heap", default=jvm.heap, help="Java heap (default: %(default)s)")
    parser.add_argument(
        "--direct-memory", default=jvm.direct_memory, help="message buffers (default: %(default)s)"
    )
    return parser


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _request_stop(number: int, frame: FrameType | None) -> NoReturn:
    # A second Ctrl-C must not interrupt the stop that the first one began.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise _StopRequest


if __name__ == "__main__":
    sys.exit(main())
