"""Values of JSON schemas -> columns, and columns -> JSON.

Two readers share ``tree``, which has the form of each value: ``arrow_read`` reads payloads in their usual
form, and ``objects`` all others, which ``parse`` makes of text. ``json_read`` chooses between them.
``json_write`` writes. Must not know other kinds of schemas, except for the tree of Avro's types.
"""
