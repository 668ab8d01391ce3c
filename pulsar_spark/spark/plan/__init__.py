"""Planning: which topic partitions a query reads, where a micro-batch ends, and which tasks read it.

This package owns offsets, ranges, the durable subscription and the rules of data loss. It must not know rows
or the sink.
"""
