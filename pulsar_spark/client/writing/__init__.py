"""Writing: producers, topic writers, transactions, and producers that deduplicate micro-batches.

Owns messages that are sent and not acknowledged. It may read: a replay is compared with what is stored.
"""
