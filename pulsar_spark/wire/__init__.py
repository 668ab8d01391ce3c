"""Bytes to values and back: no state, no clock, no I/O."""
