"""Rows: the columns that Spark sees, made from decoded messages and turned back into messages.

This package owns the schema and both directions. It must not know about connections, planning or the sink.
"""
