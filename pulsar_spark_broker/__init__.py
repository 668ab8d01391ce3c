"""A Pulsar broker from published jars, as a child process; only the standard library is imported here.

``pulsar_spark broker`` runs one. It knows nothing of pulsar_spark, which it must not need.
"""


class EmbeddedBrokerError(Exception):
    """The broker could not be fetched, started or kept running; the text says why and what to do."""
