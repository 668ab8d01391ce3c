"""Fuzzers of what a broker or a producer may send: the exit code is 1 where one finds something.

python3 -m integration hostile --entries 5000000 --frames 10000000 --values 5000000 --json 5000000 \
    --protobuf 5000000 --written 1000000 --costs 10000 --schemas 100
before a release
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Iterator

from integration.hostile import (
    costs,
    entries,
    frames,
    json_values,
    large_schemas,
    peers,
    protobuf_values,
    values,
    written,
)

_PAUSE = 10.0  # seconds between two lines


def main(arguments: list[str] | None = None) -> int:
    """Run all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m integration hostile", description=__doc__)
    parser.add_argument("--entries", type=int, default=20_000, help="decoded together (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=20_000, help="broken inputs (default: %(default)s)")
    parser.add_argument("--values", type=int, default=20_000, help="with a schema (default: %(default)s)")
    parser.add_argument("--json", type=int, default=20_000, help="JSON values (default: %(default)s)")
    parser.add_argument("--protobuf", type=int, default=20_000, help="messages (default: %(default)s)")
    parser.add_argument("--written", type=int, default=5_000, help="rows (default: %(default)s)")
    parser.add_argument("--peers", type=float, default=2.0, help="seconds for each (default: %(default)s)")
    parser.add_argument("--costs", type=int, default=200, help="large from few bytes (default: %(default)s)")
    parser.add_argument("--schemas", type=int, default=5, help="as large as any (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of a run that is to be repeated")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    try:
        _report("entries decoded together", seed, entries.run(seed, given.entries))
        _report("broken inputs", seed, frames.run(seed, given.frames))
        _report("values with a schema", seed, values.run(seed, given.values))
        _report("values of JSON", seed, json_values.run(seed, given.json))
        _report("messages of protobuf", seed, protobuf_values.run(seed, given.protobuf))
        _report("rows that are written", seed, written.run(seed, given.written))
        _report("tasks of entries that become large", seed, costs.run(seed, given.costs))
        _report("large schemas", seed, large_schemas.run(seed, given.schemas))
        _report("peers without end", seed, peers.run(given.peers))
    except (entries.DifferenceError, frames.UndocumentedError, costs.CostlyError) as error:
        print(f"failed, --seed {seed}: {error}", flush=True)
        return 1
    return 0


def _report(what: str, seed: int, counts: Iterator[int]) -> None:
    began = said = time.monotonic()
    count = 0
    for count in counts:
        now = time.monotonic()
        if now - said >= _PAUSE:
            said = now
            print(f"  {count} {what}, {now - began:.0f} s", flush=True)
    print(f"{count} {what}: nothing found in {time.monotonic() - began:.0f} s, --seed {seed}", flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # of what is left out
    sys.exit(main())
