"""Rounds of a fuzzer of values: as many as are asked for, and what they have reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from pulsar_spark.values.interfaces import DecodedValues

Round = Callable[[str, Counter[str]], int]  # of a seed; counts what it has reached; returns how many values


def rounds(seed: int, values: int, *kinds: Round) -> Iterator[int]:
    """Try at least so many values, kinds of rounds in turns; yields how many were, turn by turn.

    Raises:
        DifferenceError: something was found.
    """
    done = number = 0
    counts: Counter[str] = Counter()
    while done < values:
        done += sum(one(f"{seed}/{number}", counts) for one in kinds)
        number += 1
        yield done
    print("  reached: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())), flush=True)


def bad_rows(found: DecodedValues) -> list[bool]:
    """Which rows are bad."""
    return [False] * len(found.column) if found.is_bad is None else found.is_bad.tolist()
