"""Writing: producers, topic writers, transactions, and the de-duplicating producers of micro-batches.

Owns messages that are sent and not acknowledged. It may read: a replay is compared with what is stored.
"""
