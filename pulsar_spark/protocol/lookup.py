"""The lookup of the broker that serves a topic; follows redirects up to a limit, and supports proxies."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pulsar_spark.errors import OptionError, ProtocolError, from_server
from pulsar_spark.wire import pulsar_pb2 as pb

MAX_REDIRECTS = 20  # default limit of a lookup

# Redirects followed without a pause: usually there is one, or two while brokers disagree on a topic's owner.
_QUICK_REDIRECTS = 2
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0

# Scheme of a service URL -> its usual port.
_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}

_HOST = re.compile(
    r"(?:(?P<name>[-.\w]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[-.\w]+)?)\])(?::(?P<port>[0-9]{1,5}))?"
)

_Response = pb.CommandLookupTopicResponse


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a broker or proxy; ``proxy_to``: ``host:port`` of the broker to which a proxy connects."""

    host: str
    port: int
    proxy_to: str | None = None
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_service_url(url: str, option: str = "service.url") -> tuple[Address, ...]:
    """Parses ``pulsar://h1:6650,h2/`` or ``pulsar+ssl://...``; the port defaults to 6650, with TLS to 6651.

    Raises:
        OptionError: another scheme, no host, an invalid port. The error omits the URL and its passwords.
    """
    scheme, separator, rest = url.strip().partition("://")
    if scheme not in _PORTS or not separator:
        raise OptionError(
            f"{option} does not begin with pulsar:// or pulsar+ssl://",
            advice="Write pulsar://host:6650 or pulsar+ssl://host:6651",
        )
    hosts = rest.removesuffix("/").split(",")
    return tuple(_parse_host(host.strip(), number, scheme, option) for number, host in enumerate(hosts, 1))


def _parse_host(host: str, number: int, scheme: str, option: str) -> Address:
    match = _HOST.fullmatch(host)
    port = int(match["port"] or _PORTS[scheme]) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise OptionError(
            f"{option} has an invalid host or port: entry {number} of its list",
            advice="Write pulsar://host:port, without credentials; several hosts as host:port,host:port",
        )
    return Address(match["name"] or match["ipv6"], port, tls=scheme == "pulsar+ssl")


class Lookup:
    """One lookup, which brokers may redirect to other brokers; ``ask`` is the broker to ask next.

    Proxied connections use ``service``, the address of the service URL that answered first.
    """

    def __init__(self, topic: str, service: Address, max_redirects: int = MAX_REDIRECTS) -> None:
        self.topic = topic
        self.ask = service
        self.authoritative = False
        self._service = service
        self._max_redirects = max_redirects
        self._redirects = 0

    def answered(self, response: pb.CommandLookupTopicResponse) -> Address | None:
        """Processes an answer; returns the broker's address, or None if the broker ``ask`` must be asked.

        Raises:
            BrokerError: the lookup failed.
            ProtocolError: too many redirects, or an answer without an address.
        """
        if response.response == _Response.Failed:
            raise from_server(response.error, response.message, topic=self.topic)
        broker = self._broker_address(response)
        if response.proxy_through_service_url and broker != self._service:
            broker = replace(self._service, proxy_to=str(broker))
        if response.response == _Response.Connect:
            return broker
        self._redirects += 1
        if self._redirects > self._max_redirects:
            raise ProtocolError(
                f"the lookup was redirected more than {self._max_redirects} times", topic=self.topic
            )
        self.ask = broker
        self.authoritative = response.authoritative
        return None

    def pause(self, chance: float) -> float:
        """Returns the seconds to wait before the next request, 0 for the first redirects.

        Pauses limit new connections, because each redirect may name another host. ``chance``: random, 0 to 1.
        """
        slow = self._redirects - _QUICK_REDIRECTS
        return (
            0.0 if slow <= 0 else min(_FIRST_PAUSE * 2.0 ** min(slow - 1, 10), _MAX_PAUSE) * (1 + chance) / 2
        )

    def unfinished(self) -> ProtocolError:
        """Returns the error of a lookup that has timed out between two requests."""
        return ProtocolError(f"the lookup was redirected {self._redirects} times", topic=self.topic)

    def _broker_address(self, response: pb.CommandLookupTopicResponse) -> Address:
        tls = self._service.tls
        try:
            url = response.brokerServiceUrlTls if tls else response.brokerServiceUrl
            broker = parse_service_url(url)[0]
        except OptionError:
            broker = None
        # A broker behind a proxy may lack TLS, because this client's TLS connection ends at the proxy.
        if broker is None or (broker.tls != tls and not response.proxy_through_service_url):
            kind = "no usable TLS address" if tls else "no usable address"
            raise ProtocolError(f"the broker's response to a lookup has {kind}", topic=self.topic)
        return broker if broker.tls == tls else replace(broker, tls=tls)
