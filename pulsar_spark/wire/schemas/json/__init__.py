"""Values of JSON schemas -> columns, and columns -> JSON.

Owns what JSON is read as what, and how it is written. Must not know other kinds of schemas, but for the tree
of Avro's types.
"""
