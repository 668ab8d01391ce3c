"""Detects whether a restarted query's checkpoint belongs to another cluster."""
