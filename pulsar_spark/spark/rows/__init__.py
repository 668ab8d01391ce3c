"""Rows: decoded messages -> the columns of Spark's rows, and columns -> messages.

Owns the schema and both directions. Must not know connections, planning or the sink.
"""
