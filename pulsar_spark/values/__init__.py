"""Decodes payloads of topics with a schema to Arrow columns, and encodes columns, field by field.

Owns the byte layout of each kind of schema, and schema resolution: reading values of one schema version as
another version. Must not depend on topics, brokers or entries.
"""
