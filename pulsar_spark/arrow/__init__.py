"""Helpers for Arrow arrays and buffers that both ``wire`` and ``values`` use."""
