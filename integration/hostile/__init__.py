"""Fuzzers of what a broker or a producer may send, with counts."""
