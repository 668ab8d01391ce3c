"""Options: what users write for ``.option(...)``, one table a scope, and what it becomes.

Owns names, defaults, parsers and the dataclasses they fill. Must not know planning, sinks or readers; of rows
it knows the names of columns only.
"""
