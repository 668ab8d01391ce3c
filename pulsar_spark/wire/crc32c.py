"""CRC-32C, the checksum of entries: by the CPU's instruction, or by numpy if ``crc32c`` is not installed.

``crc32c`` has no wheel that fits every machine, so pulsar_spark must also work without it, for example if
Spark ships it with ``--py-files``.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

try:
    import crc32c as _library
except ImportError:
    _library = None  # type: ignore[assignment]  # it is a module elsewhere

_U32s: TypeAlias = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # bits in reflected order
_ONES = 0xFFFFFFFF
_LANE = 64  # bytes of a lane; one numpy call processes the byte at one offset of all lanes
_SHORT = 4096  # bytes; shorter data takes less time in a Python loop than in numpy


def crc32c_by_numpy(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Returns the CRC-32C of ``data``, continued from ``value``, the checksum of the preceding bytes.

    Long data is cut into lanes. Numpy computes the checksums of all lanes at once, then joins them in pairs:
    the left checksum, continued over as many zero bytes as the right lane has, XOR the right checksum.
    """
    view = memoryview(data).cast("B")
    lanes = len(view) // _LANE if len(view) >= _SHORT else 0
    head = len(view) - lanes * _LANE
    state = value ^ _ONES
    for byte in view[:head]:
        state = _BYTES[(state ^ byte) & 0xFF] ^ (state >> 8)
    if not lanes:
        return state ^ _ONES
    states = np.zeros(lanes, np.uint32)
    states[0] = state
    for column in np.ascontiguousarray(np.frombuffer(view[head:], np.uint8).reshape(lanes, _LANE).T):
        states = _TABLE[(states & 0xFF) ^ column] ^ (states >> 8)
    zeros = _zeros(_LANE)
    while len(states) > 1:
        if len(states) % 2:
            states = np.concatenate((np.zeros(1, np.uint32), states))
        states = _moved(zeros, states[0::2]) ^ states[1::2]
        zeros = _moved(zeros, zeros)
    return int(states[0]) ^ _ONES


def _table() -> _U32s:
    """Returns the CRC state after each byte value, from state 0."""
    states = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        states = (states >> 1) ^ np.where(states & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return states


def _zeros(count: int) -> _U32s:
    """Returns [4, 256]: item [i, b] is the CRC state after ``count`` zero bytes from state ``b << 8 * i``."""
    shifts = 8 * np.arange(4, dtype=np.uint32)[:, None]
    states = np.arange(256, dtype=np.uint32)[None, :] << shifts
    for _ in range(count):
        states = _TABLE[states & 0xFF] ^ (states >> 8)
    return states


def _moved(zeros: _U32s, states: _U32s) -> _U32s:
    low = zeros[0][states & 0xFF] ^ zeros[1][(states >> 8) & 0xFF]
    return cast("_U32s", low ^ zeros[2][(states >> 16) & 0xFF] ^ zeros[3][states >> 24])


_TABLE = _table()
_BYTES: list[int] = _TABLE.tolist()

crc32c = crc32c_by_numpy if _library is None else _library.crc32c
