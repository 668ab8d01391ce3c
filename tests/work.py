"""How much work a function does, without a clock: what a busy machine does not change."""

import gc
import sys


def calls(function):
    """How many calls of Python and C a function makes, without finalizers of what other tests left."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
