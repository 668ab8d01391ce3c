"""AVRO payloads -> a column, along a tree of steps: all rows of a field at a time.

``extents`` finds where values end, and ``readers`` reads them. ``items`` finds the items of arrays. Must not
know schemas.
"""
