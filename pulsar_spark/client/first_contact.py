"""The first contact of a query with its cluster: a wrong address becomes an error within seconds."""

from __future__ import annotations

from dataclasses import replace

from pulsar_spark.client.client import Client, ClientOptions

# Seconds until an unreachable broker is an error, when a query has just begun.
FIRST_CONTACT = 4.0


def impatient_client(options: ClientOptions) -> Client:
    """A new client whose operations take :data:`FIRST_CONTACT` seconds at most."""
    return Client(
        replace(
            options,
            operation_timeout=min(FIRST_CONTACT, options.operation_timeout),
            connection_timeout=min(FIRST_CONTACT, options.connection_timeout),
            lookup_timeout=options.lookup_timeout and min(FIRST_CONTACT, options.lookup_timeout),
        )
    )


def check_reachable(options: ClientOptions) -> None:
    """Make sure within :data:`FIRST_CONTACT` seconds that a broker accepts this client.

    Raises:
        ConnectError, ProtocolError: no broker answered.
        TlsError, AuthError: the broker, or this client, refused the other.
    """
    with impatient_client(options) as client:
        client.check()
