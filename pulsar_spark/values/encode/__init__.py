"""The parts that all encoders by Avro's schemas share: the field of each column, and columns as bytes.

Owns the types and values of columns that fit a field. Must not know whether Avro or JSON is written.
"""
