"""Planning: a query's topic partitions, the end of each micro-batch, and its tasks.

This package owns offsets, ranges, the durable subscription and the rules of data loss. It must not depend on
rows or the sink.
"""
