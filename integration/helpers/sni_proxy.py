"""A TCP proxy that finds the server of each connection by the host that TLS names, and reads no further.

What stands in front of Kubernetes and at the edge of networks does so: Apache Traffic Server, HAProxy, Envoy.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from integration.helpers.relay import Relay, until_one_ends

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _SUPPORTED_VERSIONS = 22, 1, 0, 43


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a client says first.

    Attributes:
        host: the name of the server; "" without one.
        suites: the codes of the cipher suites that it offers.
        versions: of TLS, such as 0x0303 for 1.2; none where it has no list of them.
    """

    host: str
    suites: tuple[int, ...]
    versions: tuple[int, ...]


class SniProxy(Relay):
    """Stands in front of any number of servers; a context manager.

    Attributes:
        service_url: what clients use.
        seen: what was said in each connection, in their order.
    """

    def __init__(self, servers: Mapping[str, tuple[str, int]]) -> None:
        """Pass connections on to the address of the server by its name; those for others are closed."""
        super().__init__(is_tls=True)
        self._servers = servers
        self.seen: list[ClientHello] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on to the server that the ClientHello names."""
        head = await reader.readexactly(5)
        kind, _, size = struct.unpack(">BHH", head)
        if kind != _HANDSHAKE:
            return
        record = await reader.readexactly(size)
        hello = _parse(record)
        self.seen.append(hello)
        if hello.host not in self._servers:
            return
        from_server, to_server = await asyncio.open_connection(*self._servers[hello.host])
        with contextlib.closing(to_server):
            to_server.write(head + record)
            await until_one_ends(_pass_on(reader, to_server), _pass_on(from_server, writer))


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()


def _parse(record: bytes) -> ClientHello:
    """A ClientHello that is one record, as those of OpenSSL are (RFC 8446, 4.1.2)."""
    assert record[0] == _CLIENT_HELLO
    at = 4 + 2 + 32  # type and length, version, random
    at += 1 + record[at]  # session id
    (size,) = struct.unpack_from(">H", record, at)
    suites = struct.unpack_from(f">{size // 2}H", record, at + 2)
    at += 2 + size
    at += 1 + record[at]  # compression
    host, versions = "", ()
    at += 2
    while at < len(record):
        kind, size = struct.unpack_from(">HH", record, at)
        body = record[at + 4 : at + 4 + size]
        if kind == _SERVER_NAME:
            host = body[5:].decode()
        elif kind == _SUPPORTED_VERSIONS:
            versions = struct.unpack_from(f">{body[0] // 2}H", body, 1)
        at += 4 + size
    return ClientHello(host, suites, versions)
