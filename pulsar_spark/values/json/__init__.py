"""Values of JSON schemas -> columns, and columns -> JSON.

``json_read`` chooses between two readers, which share ``tree``, the form of each value. ``arrow_read`` reads
payloads in their usual form. ``objects`` reads all other payloads, which ``parse`` parses. ``json_write``
writes. Must not know other kinds of schemas, except for the tree of Avro's types.
"""
