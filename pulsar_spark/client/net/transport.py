"""Transport: a TCP connection, with or without TLS, that is opened within a timeout and then never blocks.

It must not depend on the protocol, with one exception: it tests whether a port expects TLS.
"""

from __future__ import annotations

import ipaddress
import selectors
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.tls import TlsOptions, tls_context
from pulsar_spark.errors import AuthError, ConnectError, PulsarError, TlsError
from pulsar_spark.protocol.lookup import Address
from pulsar_spark.wire import commands

# Maximum bytes of a read. Large, because an entry that is split over two reads must be copied.
_RECEIVE_SIZE = 1 << 20
# Maximum bytes of a TLS write. Each write is encrypted by itself, so small buffers are joined before.
_TLS_SEND_SIZE = 1 << 17
# OpenSSL's verification codes: host name or IP mismatch; expired or not yet valid; untrusted authority.
_WRONG_HOST = (62, 64)
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNTRUSTED = (2, 18, 19, 20, 21)


class Transport:
    """A connected socket that never blocks; plain TCP.

    Attributes:
        read_wants_write: whether reading must wait until the socket is writable.
    """

    read_wants_write = False

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        """Returns the file descriptor, for a selector."""
        return self._socket.fileno()

    def interest(self, *, has_output: bool) -> int:
        """Returns the selector events to wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if has_output else 0)

    def receive(self) -> bytes | None:
        """Returns the received bytes: b"" at the end, None for none. Raises OSError or a PulsarError."""
        try:
            return self._socket.recv(_RECEIVE_SIZE)
        except BlockingIOError:
            return None

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Sends buffers in order; returns the number of accepted bytes, 0 if none can be sent now.

        The next call must begin with the bytes that were not accepted. Raises OSError.
        """
        try:
            return self._socket.sendmsg(buffers)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


class TlsTransport(Transport):
    """A transport over TLS, which may have to read in order to write, and to write in order to read."""

    _socket: ssl.SSLSocket

    def __init__(self, connected: ssl.SSLSocket, peer: str, *, shown: bool) -> None:
        """``peer``: name for errors; ``shown``: whether this client has sent a certificate."""
        super().__init__(connected)
        self._peer = peer
        self._shown = shown
        self._write_wants_read = False

    def interest(self, *, has_output: bool) -> int:
        """Returns the selector events to wait for."""
        writes = self.read_wants_write or (has_output and not self._write_wants_read)
        return super().interest(has_output=writes)

    def receive(self) -> bytes | None:
        """Returns the received bytes of many TLS records; see ``Transport``.

        Raises AuthError if the broker refused this client's certificate, which TLS 1.3 reports only here.
        """
        pieces: list[bytes] = []
        size = 0
        self.read_wants_write = self._write_wants_read = False
        # Also reads bytes that TLS has already decrypted, because no selector reports them.
        while size < _RECEIVE_SIZE or self._socket.pending():
            try:
                piece = self._socket.recv(_RECEIVE_SIZE)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                self.read_wants_write = isinstance(error, ssl.SSLWantWriteError)
                return b"".join(pieces) if pieces else None
            except OSError as error:
                if pieces:
                    break  # return these bytes first; the next call raises the error
                if not isinstance(error, ssl.SSLError):
                    raise
                raise _refused_by_peer(error, self._peer, shown=self._shown) or error from None
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Sends the first buffers in one TLS write; see ``Transport.send``."""
        try:
            return self._socket.send(_first_bytes(buffers))
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLWantReadError:
            self._write_wants_read = True
            return 0


def _first_bytes(buffers: Iterable[Buffer]) -> Buffer:
    """Returns the first bytes for one TLS write; if the write is repeated, OpenSSL requires equal bytes."""
    taken: list[Buffer] = []
    size = 0
    for buffer in buffers:
        taken.append(buffer)
        size += len(buffer)
        if size >= _TLS_SEND_SIZE:
            break
    joined = taken[0] if len(taken) == 1 else b"".join(taken)
    return memoryview(joined)[:_TLS_SEND_SIZE]


def open_transport(address: Address, tls: TlsOptions, timeout: float) -> Transport:
    """Connects, with a TLS handshake if ``address`` has TLS.

    Raises:
        ConnectError: no server listens at the address, or it does not answer in time.
        TlsError: the TLS handshake failed, a file cannot be used, or the address has no host name for the
            proxy.
        AuthError: the peer refused this client's certificate.
    """
    deadline = Deadline(timeout)
    if not address.tls:
        return Transport(_connect_each(address, deadline, socket.socket))
    target = address if tls.proxy is None else _proxy_to(address, tls.proxy)
    wrapped = _connect_for_tls(target, address.host, tls_context(tls), deadline)
    peer = str(address) if target is address else f"{address} (through the proxy {target})"
    try:
        _shake_hands_or_say_why(wrapped, target, peer, deadline)
    except BaseException:
        wrapped.close()
        raise
    return TlsTransport(wrapped, peer, shown=tls.has_certificate)


def explain_closed(address: Address, timeout: float) -> PulsarError | None:
    """Returns the error for a plain connection that was closed before any answer, if the port expects TLS."""
    if address.tls or not _speaks_tls(address, Deadline(timeout)):
        return None
    return TlsError(
        f"{address} requires TLS, but the connection was opened without TLS",
        advice="Write pulsar+ssl:// in service.url",
    )


def _proxy_to(address: Address, proxy: Address) -> Address:
    """Returns the proxy's address; raises TlsError for a broker without a host name."""
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        return proxy
    raise TlsError(
        f"the proxy {proxy} cannot find {address}: a TLS handshake names hosts, never IP addresses",
        advice="Name brokers by their hosts in service.url and in the brokers' advertisedAddress or "
        "advertisedListeners",
    )


def _connect_for_tls(
    address: Address, host: str, context: ssl.SSLContext, deadline: Deadline
) -> ssl.SSLSocket:
    def unconnected(family: int, kind: int) -> ssl.SSLSocket:
        # Wrapped before connecting, because ssl does not close a socket that is reset while it is being
        # wrapped.
        with socket.socket(family, kind) as bare:  # closes ``bare`` only if wrapping fails
            return context.wrap_socket(bare, server_hostname=host, do_handshake_on_connect=False)

    return _connect_each(address, deadline, unconnected)


_Socket = TypeVar("_Socket", bound=socket.socket)


def _connect_each(
    address: Address, deadline: Deadline, unconnected: Callable[[int, int], _Socket]
) -> _Socket:
    """Connects to the host's first address that accepts; untried addresses share the time left equally."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError for an invalid host name
        raise _cannot_connect(address, error) from error
    problem = OSError("the host has no address")
    for number, (family, kind, _, _, target) in enumerate(found):
        opened: _Socket | None = None
        try:
            opened = unconnected(family, kind)
            opened.settimeout(max(deadline.left / (len(found) - number), 0.001))
            opened.connect(target)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setblocking(False)
            return opened
        except OSError as error:
            if opened is not None:
                opened.close()
            problem = error
    raise _cannot_connect(address, problem) from problem


def _cannot_connect(address: Address, error: Exception) -> ConnectError:
    reason = getattr(error, "strerror", None) or error
    return ConnectError(
        f"cannot connect to {address}: {reason}",
        advice="Check service.url, proxyServiceUrl if it is set, and that the broker runs there",
    )


def _shake_hands_or_say_why(wrapped: ssl.SSLSocket, address: Address, peer: str, deadline: Deadline) -> None:
    try:
        _shake_hands(wrapped, peer, deadline)
    except ssl.SSLCertVerificationError as error:
        raise _distrusted(error, peer) from None
    except (ssl.SSLEOFError, ConnectionError) as error:
        if _speaks_plainly(address, deadline):
            raise _no_tls(peer) from None
        raise ConnectError(f"{peer} closed the connection during the TLS handshake") from error
    except ssl.SSLError as error:
        raise _refused_by_peer(error, peer, shown=False) or _no_tls(peer) from error
    except OSError as error:
        raise ConnectError(
            f"the connection to {peer} was lost during the TLS handshake: {error.strerror or error}"
        ) from error


def _shake_hands(wrapped: ssl.SSLSocket, peer: str, deadline: Deadline) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(wrapped, selectors.EVENT_READ)
        while True:
            try:
                wrapped.do_handshake()
                return
            except ssl.SSLWantReadError:
                selector.modify(wrapped, selectors.EVENT_READ)
            except ssl.SSLWantWriteError:
                selector.modify(wrapped, selectors.EVENT_WRITE)
            if not selector.select(deadline.left) and deadline.passed:
                raise ConnectError(
                    f"the TLS handshake with {peer} did not finish within {deadline.seconds:g} s",
                    advice="Check that service.url names a Pulsar broker's TLS port",
                )


def _distrusted(error: ssl.SSLCertVerificationError, peer: str) -> TlsError:
    code = error.verify_code
    if code in _WRONG_HOST:
        return TlsError(
            f"the certificate of {peer} does not name that host",
            advice="Use the host name of the broker's certificate in service.url, or set "
            "pulsar.client.tlsHostnameVerificationEnable to false",
        )
    if code in (_EXPIRED, _NOT_YET_VALID):
        word = "has expired" if code == _EXPIRED else "is not valid yet"
        return TlsError(f"the certificate of {peer} {word}", advice="Renew it, or check this host's clock")
    if code in _UNTRUSTED:
        return TlsError(
            f"the certificate of {peer} was issued by an untrusted authority",
            advice="Set pulsar.client.tlsTrustCertsFilePath or tlsTrustStorePath to a file with the "
            "authority's certificates",
        )
    return TlsError(f"the certificate of {peer} was rejected: {error.verify_message}")


def _refused_by_peer(error: ssl.SSLError, peer: str, *, shown: bool) -> PulsarError | None:
    """Returns the error for a TLS alert; None for other errors. ``shown``: a certificate was sent.

    If ``shown``, every alert counts as a refused certificate, because Java may report "internal error".
    """
    reason = error.reason or ""
    if "ALERT" not in reason:
        return None
    said = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if shown or "certificate" in said or "unknown ca" in said:
        return AuthError(
            f"{peer} rejected this client's certificate: {said}",
            advice="Check pulsar.client.tlsCertificateFilePath and tlsKeyFilePath, or tlsKeyStorePath. "
            "Check that the certificate has not expired, and that the broker trusts its "
            "authority",
        )
    return TlsError(f"{peer} aborted the TLS handshake: {said}")


def _no_tls(peer: str) -> TlsError:
    return TlsError(
        f"{peer} does not speak TLS", advice="Write pulsar:// in service.url, or use the broker's TLS port"
    )


def _speaks_tls(address: Address, deadline: Deadline) -> bool:
    context = tls_context(TlsOptions(allow_insecure=True))
    try:
        with _connect_for_tls(address, address.host, context, deadline) as wrapped:
            _shake_hands(wrapped, str(address), deadline)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # the peer has TLS, with other settings
    except (PulsarError, OSError):
        return False
    return True


def _speaks_plainly(address: Address, deadline: Deadline) -> bool:
    """Whether the peer answers CONNECT without TLS: with byte 0, which begins each frame below 16 MiB."""
    try:
        with _connect_each(address, deadline, socket.socket) as opened:
            opened.settimeout(max(deadline.left, 0.001))
            opened.sendall(commands.connect("pulsar-spark"))
            return opened.recv(1) == b"\0"
    except (PulsarError, OSError):
        return False
