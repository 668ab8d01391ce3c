"""Planning: which topic partitions a query reads, where a micro-batch ends, and which tasks read it.

Owns offsets, ranges, the durable subscription and the rules of data loss. Must not know rows or the sink.
"""
