"""Rows become entries, and entries are sent until they are stored: batches, partitions, schemas, receipts.

Rows stored by earlier runs of a task are the subject of ``replay``.
"""
