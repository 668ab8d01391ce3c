"""Rows: the columns that Spark sees, from decoded messages and back to messages.

Owns the schema, and both directions side by side. Must not know connections, planning or the sink.
"""
