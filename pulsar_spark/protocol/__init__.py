"""The rules of the protocol as small state machines: no I/O; the time is an argument."""
