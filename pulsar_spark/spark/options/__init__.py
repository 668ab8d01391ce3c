"""Options: the names and values that users pass to ``.option(...)``, one table for each scope.

Owns names, defaults, parsers and the dataclasses of values. Must not know planning, sinks or readers, and of
rows only the names of columns.
"""
