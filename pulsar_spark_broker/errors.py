"""The one error of the launcher."""


class EmbeddedBrokerError(Exception):
    """The broker could not be fetched, started or kept running; the text says why and what to do."""
