"""A Pulsar broker from published jars, as a child process; only the standard library is imported here.

``pulsar_spark broker`` runs one. It knows nothing of pulsar_spark, which it must not need.
"""
