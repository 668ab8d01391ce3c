"""Values of JSON schemas -> columns, and columns -> JSON.

``json_read`` reads payloads in their usual form by PyArrow. ``objects`` reads all other payloads, which
``parse`` parses. Both know the types of values from ``tree``. ``json_write`` writes.
Of the other kinds of schemas, this package may import only ``avro``.
"""
