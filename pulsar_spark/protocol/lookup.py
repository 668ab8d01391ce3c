"""Finding the broker that serves a topic: redirects with a hop limit, and proxies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulsar_spark.errors import OptionError, ProtocolError, from_server
from pulsar_spark.wire import pulsar_pb2 as pb

HOP_LIMIT = 20
DEFAULT_PORT = 6650

_HOST = re.compile(
    r"(?:(?P<name>[-.\w]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[-.\w]+)?)\])(?::(?P<port>[0-9]{1,5}))?"
)

_Response = pb.CommandLookupTopicResponse


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect: ``host`` and ``port``, and the broker that a proxy there is asked to reach."""

    host: str
    port: int
    proxy_to: str | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_service_url(url: str) -> tuple[Address, ...]:
    """Read ``pulsar://h1:6650,h2/``; the port defaults to 6650.

    Raises:
        OptionError: another scheme, no host, a bad port. The URL is not repeated: it may hold a password.
    """
    scheme, separator, rest = url.strip().partition("://")
    if scheme != "pulsar" or not separator:
        raise OptionError("service.url does not begin with pulsar://", advice="Write pulsar://host:6650")
    hosts = rest.removesuffix("/").split(",")
    return tuple(_parse_host(host.strip(), number) for number, host in enumerate(hosts, 1))


def _parse_host(host: str, number: int) -> Address:
    match = _HOST.fullmatch(host)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise OptionError(
            f"service.url has no valid host and port at place {number} of its list",
            advice="Write pulsar://host:port, without credentials; several hosts as host:port,host:port",
        )
    return Address(match["name"] or match["ipv6"], port)


class Lookup:
    """One look-up on its way from broker to broker.

    Args:
        topic: the full topic name.
        service: the address of the service URL that answered first; proxied connections go there.
    """

    def __init__(self, topic: str, service: Address) -> None:
        self.topic = topic
        self.ask = service
        self.authoritative = False
        self._service = service
        self._hops = 0

    def answered(self, response: pb.CommandLookupTopicResponse) -> Address | None:
        """Take an answer: the broker's address, or None when ``ask`` is to be asked next.

        Raises:
            BrokerError: the look-up failed.
            ProtocolError: too many redirects, or an answer without an address.
        """
        if response.response == _Response.Failed:
            raise from_server(response.error, response.message, topic=self.topic)
        broker = _broker_address(response, self.topic)
        if response.proxy_through_service_url and broker != self._service:
            broker = Address(self._service.host, self._service.port, proxy_to=str(broker))
        if response.response == _Response.Connect:
            return broker
        self._hops += 1
        if self._hops > HOP_LIMIT:
            raise ProtocolError(f"the look-up was redirected more than {HOP_LIMIT} times", topic=self.topic)
        self.ask = broker
        self.authoritative = response.authoritative
        return None


def _broker_address(response: pb.CommandLookupTopicResponse, topic: str) -> Address:
    try:
        return parse_service_url(str(response.brokerServiceUrl))[0]
    except OptionError:
        raise ProtocolError("the broker's answer to a look-up names no usable address", topic=topic) from None
