"""Options: the names and values that users pass to ``.option(...)``, one table for each scope.

This package owns names, defaults, parsers and the dataclasses of values. It must not import planning, the
sink or readers.
"""
