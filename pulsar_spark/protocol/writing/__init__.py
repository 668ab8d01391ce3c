"""Rows become entries, and entries are sent until they are stored: batches, partitions, schemas, receipts.

``replay`` handles rows stored by earlier runs of a task.
"""
