"""Payloads of topics with a schema <-> Arrow columns, all rows of a field at a time.

Owns the byte layout of each kind of schema, and how a value of one version becomes a value of another. Must
not know topics, brokers, or which version an entry names.
"""
