"""Plant faults, each of which a named test must catch.

python -m integration.mutants [PART OF A FAULT'S NAME]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from integration.mutants import FAULTS
from integration.mutants.fault import DriftError
from integration.mutants.run import run_all

ROOT = Path(__file__).resolve().parent.parent.parent


def main(arguments: Sequence[str]) -> int:
    """Run all faults, or those whose name holds the argument; returns the exit code."""
    faults = [fault for fault in FAULTS if all(part in fault.name for part in arguments)]
    if len(arguments) > 1 or not faults:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for fault in faults:
            fault.planted((ROOT / fault.file).read_text(encoding="utf-8"))
        return run_all(ROOT, faults)
    except DriftError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
