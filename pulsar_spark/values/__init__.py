"""Payloads of topics with a schema <-> Arrow columns, all rows of a field at a time.

Owns the byte layout of each kind of schema, and the resolution of a value's version to another version. Must
not know topics, brokers, or the version of an entry.
"""
