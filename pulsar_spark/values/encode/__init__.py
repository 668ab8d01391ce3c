"""Shared by all encoders by Avro's schemas: the field of each column, and columns as bytes.

Owns which types and values of columns fit a field. Must not know whether Avro or JSON is written.
"""
