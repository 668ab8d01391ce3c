"""Rows become entries, and entries are sent until they are stored: batches, partitions, schemas, receipts.

Must not know what earlier runs of a task have stored: that is ``replay``.
"""
