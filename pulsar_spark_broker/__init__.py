"""A Pulsar broker from published jars, as a child process; only the standard library is imported here.

``python3 -m pulsar_spark_broker`` runs one. It knows nothing of pulsar_spark, which it must not need.
"""
