"""Rows: decoded messages -> the columns of Spark's rows, and columns -> messages.

This package owns the schema and both conversions. It must not import connections, planning or the sink.
"""
