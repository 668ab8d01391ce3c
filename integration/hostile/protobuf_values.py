"""The fuzzer of PROTOBUF_NATIVE: rows are what protobuf's own runtime makes of each payload by itself.

A round draws a file of messages, and payloads, many of them with bytes changed. All are decoded together.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from integration.hostile.entries import DifferenceError
from integration.hostile.rounds import bad_rows, rounds
from pulsar_spark.values import formats
from tests.values.protobuf_files import (
    fill,
    message_class,
    mutated,
    plain_rows,
    random_file,
    row_class,
    row_of,
    schema,
)

ROWS = 1000  # payloads of a round
_EXPLAINED = 50  # of them, if they are bad
_ROOT = "p.M0"


def run(seed: int, payloads: int) -> Iterator[int]:
    """Decode at least so many payloads; see ``rounds``."""
    return rounds(seed, payloads, one_round)


def one_round(seed: str, counts: Counter[str]) -> int:
    """Compare the payloads of one file of messages; returns how many were."""
    rnd = random.Random(f"protobuf {seed}")
    file = random_file(rnd, rnd.choice(["proto2", "proto3"]))
    whole, single = message_class(file, _ROOT), row_class([file], _ROOT)
    payloads = []
    for _ in range(ROWS):
        message = whole()
        fill(rnd, message)
        payload = message.SerializePartialToString(deterministic=True)
        payloads.append(mutated(rnd, payload) if rnd.random() < 0.4 else payload)
    of = schema(file, _ROOT)
    decoder = formats.decoder(of, of, formats.column_type(of))
    found = decoder.decode(pa.array(payloads, pa.binary()), pa.nulls(ROWS, pa.binary()))
    found.column.validate(full=True)
    explained = 0
    for payload, row, is_bad in zip(payloads, plain_rows(found.column), bad_rows(found), strict=True):
        expected = _row(whole, single, payload)
        if is_bad != (expected is None) or repr(row) != repr(expected):  # -0.0 is not 0.0
            raise DifferenceError(
                f"seed {seed}: payload {payload.hex()} of {file} is {row!r}, bad {is_bad}, "
                f"and to protobuf {expected!r}"
            )
        if is_bad and explained < _EXPLAINED:
            explained += 1
            if not decoder.explain(payload, None):
                raise DifferenceError(f"seed {seed}: nobody says why {payload.hex()} of {file} is bad")
        counts["bad" if is_bad else "good"] += 1
    counts["files"] += 1
    return ROWS


def _row(whole: Any, single: Any, payload: bytes) -> Any:
    """What protobuf makes of a payload; None: it is bad.

    In a map, an entry without a value has an empty message, which may lack a required field; among repeated
    entries it has none. upb takes an entry with unknown fields out of a map, unlike Java, so they go first.
    """
    try:
        whole.FromString(payload)
        message = single.FromString(payload)
        row = row_of(message)
        is_initialized = message.IsInitialized()
        message.DiscardUnknownFields()
        is_whole = whole.FromString(message.SerializePartialToString()).IsInitialized()
        return row if is_initialized and is_whole else None
    except (DecodeError, UnicodeDecodeError):
        return None
