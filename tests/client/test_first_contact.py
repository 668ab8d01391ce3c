"""The first contact fails soon, whatever patience the client is given."""

import socket
import time

import pytest

from pulsar_spark.client import ClientOptions, check_reachable
from pulsar_spark.client.first_contact import FIRST_CONTACT, impatient_client
from pulsar_spark.errors import ConnectError


@pytest.fixture
def nowhere():
    """The URL of a port at which nobody listens."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    return f"pulsar://localhost:{port}"


@pytest.mark.parametrize(("given", "taken"), [(600.0, FIRST_CONTACT), (0.5, 0.5)])
def test_it_is_never_more_patient_than_the_user(given, taken):
    options = ClientOptions(
        service_url="pulsar://localhost:1", operation_timeout=given, connection_timeout=given
    )
    with impatient_client(options) as client:
        assert client.options.operation_timeout == client.options.connection_timeout == taken
        assert client.options.service_url == options.service_url
        assert client.options.lookup_timeout is None


@pytest.mark.parametrize(("given", "taken"), [(600.0, FIRST_CONTACT), (0.5, 0.5)])
def test_look_ups_are_not_more_patient_either(given, taken):
    options = ClientOptions(service_url="pulsar://localhost:1", lookup_timeout=given)
    with impatient_client(options) as client:
        assert client.options.lookup_timeout == taken


def test_a_wrong_address_is_an_error_in_seconds(nowhere):
    began = time.monotonic()
    with pytest.raises(ConnectError):
        check_reachable(ClientOptions(service_url=nowhere, operation_timeout=0.3, connection_timeout=0.3))
    assert time.monotonic() - began < 60.0
