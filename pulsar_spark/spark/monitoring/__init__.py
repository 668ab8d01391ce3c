"""Monitoring: what sources and sinks report of a query, and how the listener shows it.

It owns the figures, their way between Spark's processes on the driver's host, the metrics and the live page.
"""
