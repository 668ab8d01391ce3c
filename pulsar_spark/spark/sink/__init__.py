"""The sink: what a task sends, what is promised of it, and what the driver commits and reports.

Owns de-duplication and transactions of micro-batches as Spark names them. Must not know how anything is read.
"""
