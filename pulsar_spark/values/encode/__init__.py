"""Code that the encoders of AVRO and JSON share: finds the field of each column, and makes bytes of columns.

Owns the rules by which a column fits a field. Must not know whether Avro or JSON is written.
"""
