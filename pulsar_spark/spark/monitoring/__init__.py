"""Monitoring: the reports of a query's sources and sinks, and how the listener shows them.

It owns the figures, their exchange between Spark's processes on the driver's host, the metrics and the live
page.
"""
