"""Receiving the entries of a range: permits, chunks, searches by time, and data loss."""
