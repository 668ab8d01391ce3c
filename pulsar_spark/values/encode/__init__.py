"""What all encoders by Avro's schemas share: which column goes into which field, and columns as bytes.

Owns what fits: types of columns in types of fields, and single values. Must not know whether Avro or JSON is
written; only defaults, which JSON leaves out, are Avro's bytes.
"""
