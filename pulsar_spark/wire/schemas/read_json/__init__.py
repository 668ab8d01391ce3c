"""Values of JSON schemas -> columns: the ways of ``json_read``.

Owns what JSON is read as what. Must not know other kinds of schemas, but for the tree of Avro's types.
"""
