"""Run a program whose timed waits may take 4 ms longer, which Linux calls timer slack: COMMAND...

A broker wakes a thread each millisecond, also where nobody uses it. With this that takes a third of the CPU.
"""

from __future__ import annotations

import ctypes
import os
import sys

SLACK_NS = 4_000_000
_PR_SET_TIMERSLACK = 29

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NS))
    os.execvp(sys.argv[1], sys.argv[1:])
