"""How much work a function does, without a clock: what a busy machine does not change."""

import sys


def calls(function):
    """How many calls of Python and C a function makes."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
