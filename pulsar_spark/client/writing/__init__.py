"""Writing: producers, topic writers, transactions, and producers that deduplicate micro-batches.

Owns messages that are sent and not acknowledged. It may depend on reading, because a replay is compared with
stored entries.
"""
