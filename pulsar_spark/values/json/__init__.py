"""Decodes JSON payloads to columns, and encodes columns as JSON.

``json_read`` decodes payloads by PyArrow if possible. ``objects`` decodes all other payloads, as the Python
objects that ``parse`` returns. ``tree`` has the types of values. ``json_write`` encodes.
Of the packages for other kinds of schemas, this package may import only ``avro``.
"""
