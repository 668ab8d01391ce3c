"""Transport: a TCP connection, with TLS or without, that is opened in time and then never blocks.

It must not know the protocol, but for one question: what a port speaks that did not take what it was sent.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.errors import AuthError, ConnectError, PulsarError, TlsError
from pulsar_spark.protocol.lookup import Address
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import Buffer

# The larger, the fewer entries lie across two and are copied.
_RECEIVE_SIZE = 1 << 20
# TLS encrypts what it is given in one call: small buffers are joined up to this, large ones cut.
_TLS_SEND_SIZE = 1 << 17
# What OpenSSL calls a name or an address that is not the certificate's, and times that are not now.
_WRONG_HOST = (62, 64)
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNTRUSTED = (2, 18, 19, 20, 21)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How TLS is spoken; files are PEM, and read again for each new connection.

    Attributes:
        trust_certs: file of the authorities' certificates; None: those of the system.
        certificate: file of this client's certificate, with its chain, for mutual TLS.
        key: file of its private key, without a passphrase.
        allow_insecure: whether any certificate of the broker will do.
        verify_hostname: whether the broker's certificate must name the host that was asked for.
    """

    trust_certs: str | None = None
    certificate: str | None = None
    key: str | None = None
    allow_insecure: bool = False
    verify_hostname: bool = True


class Transport:
    """A connected socket that never blocks; plain TCP.

    Attributes:
        read_wants_write: whether reading waits until it can be written.
    """

    read_wants_write = False

    def __init__(self, connected: socket.socket, address: Address) -> None:
        self._socket = connected
        self._address = address

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def interest(self, *, has_output: bool) -> int:
        """The selector events to wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if has_output else 0)

    def receive(self) -> bytes | None:
        """What has come: b"" at the end, None where nothing has. Raises OSError, or a PulsarError."""
        try:
            return self._socket.recv(_RECEIVE_SIZE)
        except BlockingIOError:
            return None

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send from the first buffer on; how many bytes were taken, 0 where none can be now.

        Until they are taken, the next call must begin with the same bytes. Raises OSError.
        """
        try:
            return self._socket.sendmsg(buffers)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class TlsTransport(Transport):
    """The same over TLS, which may have to read in order to write, and to write in order to read."""

    def __init__(self, connected: ssl.SSLSocket, address: Address, *, shown: bool) -> None:
        """``shown``: whether this client has shown a certificate."""
        super().__init__(connected, address)
        self._shown = shown
        self._write_wants_read = False

    def interest(self, *, has_output: bool) -> int:
        """The selector events to wait for."""
        writes = self.read_wants_write or (has_output and not self._write_wants_read)
        return super().interest(has_output=writes)

    def receive(self) -> bytes | None:
        """What has come, of many TLS records; see ``Transport``.

        Raises:
            AuthError: the broker refused this client's certificate, which with TLS 1.3 shows only here.
        """
        pieces: list[bytes] = []
        size = 0
        self.read_wants_write = self._write_wants_read = False
        # All that is there: no selector reports what TLS holds decrypted.
        while size < _RECEIVE_SIZE or self._pending():
            try:
                piece = self._socket.recv(_RECEIVE_SIZE)
            except ssl.SSLWantReadError:
                return b"".join(pieces) if pieces else None
            except ssl.SSLWantWriteError:
                self.read_wants_write = True
                return b"".join(pieces) if pieces else None
            except OSError as error:
                if pieces:
                    break  # first what came; the next call gives the error
                if not isinstance(error, ssl.SSLError):
                    raise
                raise _refused_by_peer(error, self._address, shown=self._shown) or error from None
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def send(self, buffers: Sequence[Buffer]) -> int:
        """See ``Transport``."""
        try:
            return self._socket.send(_first_bytes(buffers))
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLWantReadError:
            self._write_wants_read = True
            return 0

    def _pending(self) -> int:
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.pending()


def _first_bytes(buffers: Iterable[Buffer]) -> Buffer:
    """What one call is to encrypt. The same buffers with more after them give the same beginning."""
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
    """Connect, with the TLS handshake where ``address`` says TLS.

    Args:
        address: where to.
        tls: for an address with TLS.
        timeout: seconds for all of it.

    Raises:
        ConnectError: nobody listens, or not in time.
        TlsError: the peer's certificate is not to be trusted, it speaks no TLS, or a file cannot be used.
        AuthError: the peer refused this client's certificate.
    """
    deadline = Deadline(timeout)
    if not address.tls:
        return Transport(_connect(address, deadline), address)
    wrapped = _connect_for_tls(address, tls_context(tls), deadline)
    try:
        _shake_hands_or_say_why(wrapped, address, deadline)
    except BaseException:
        wrapped.close()
        raise
    return TlsTransport(wrapped, address, shown=tls.certificate is not None)


def explain_closed(address: Address, timeout: float) -> PulsarError | None:
    """Why a connection without TLS was closed before any answer, if it is that the port wants TLS."""
    if address.tls or not _speaks_tls(address, Deadline(timeout)):
        return None
    return TlsError(
        f"{address} speaks TLS, and was asked without", advice="Write pulsar+ssl:// in service.url"
    )


def _connect(address: Address, deadline: Deadline) -> socket.socket:
    return _connect_each(address, deadline, socket.socket)


def _connect_for_tls(address: Address, context: ssl.SSLContext, deadline: Deadline) -> ssl.SSLSocket:
    """Connect, as far as before the handshake."""

    def unconnected(family: int, kind: int) -> ssl.SSLSocket:
        # Wrapped before it is connected: ssl loses hold of a socket that is reset while it is being wrapped.
        with socket.socket(family, kind) as bare:  # which is empty once it is wrapped
            return context.wrap_socket(bare, server_hostname=address.host, do_handshake_on_connect=False)

    return _connect_each(address, deadline, unconnected)


_Socket = TypeVar("_Socket", bound=socket.socket)


def _connect_each(
    address: Address, deadline: Deadline, unconnected: Callable[[int, int], _Socket]
) -> _Socket:
    """Connect to the first of the host's addresses that takes it; none may use up the others' time."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for a name that cannot be one of a host
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
        advice="Check service.url and that the broker runs there",
    )


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """How ``tls`` is spoken, with its files as they are now. Raises TlsError where one cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verify_hostname and not tls.allow_insecure
    if tls.allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    elif tls.trust_certs is None:
        context.load_default_certs()
    else:
        # As in Java, whatever is in the file is trusted, an authority's root or not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(tls.trust_certs)
        except OSError as error:
            raise _unusable("tlsTrustCertsFilePath", error) from None
    if tls.certificate is not None:
        try:
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(tls.certificate, tls.key, password="")
        except OSError as error:
            raise _unusable("tlsCertificateFilePath or tlsKeyFilePath", error) from None
    return context


def _unusable(option: str, error: OSError) -> TlsError:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return TlsError(
        f"the PEM file that {option} names cannot be used: {reason or 'no certificate in it'}",
        advice="It must be readable where the query's driver and its tasks run; a key without a passphrase",
    )


def _shake_hands_or_say_why(wrapped: ssl.SSLSocket, address: Address, deadline: Deadline) -> None:
    try:
        _shake_hands(wrapped, address, deadline)
    except ssl.SSLCertVerificationError as error:
        raise _distrusted(error, address) from None
    except (ssl.SSLEOFError, ConnectionError) as error:
        if _speaks_plainly(address, deadline):
            raise _no_tls(address) from None
        raise ConnectError(f"{address} closed the connection in the TLS handshake") from error
    except ssl.SSLError as error:
        raise _refused_by_peer(error, address, shown=False) or _no_tls(address) from error
    except OSError as error:
        raise ConnectError(
            f"the connection to {address} broke in the TLS handshake: {error.strerror or error}"
        ) from error


def _shake_hands(wrapped: ssl.SSLSocket, address: Address, deadline: Deadline) -> None:
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
                    f"the TLS handshake with {address} did not end within {deadline.seconds:g} s",
                    advice="Check that service.url names a Pulsar broker's TLS port",
                )


def _distrusted(error: ssl.SSLCertVerificationError, address: Address) -> TlsError:
    """Say what is wrong with the broker's certificate."""
    code = error.verify_code
    if code in _WRONG_HOST:
        return TlsError(
            f"the certificate of {address} is not made out for that host",
            advice="Name the broker as its certificate does, or set "
            "pulsar.client.tlsHostnameVerificationEnable to false",
        )
    if code in (_EXPIRED, _NOT_YET_VALID):
        word = "has expired" if code == _EXPIRED else "is not valid yet"
        return TlsError(f"the certificate of {address} {word}", advice="Renew it, or check this host's clock")
    if code in _UNTRUSTED:
        return TlsError(
            f"the certificate of {address} comes from an authority that is not trusted",
            advice="Name the authority's certificates with pulsar.client.tlsTrustCertsFilePath",
        )
    return TlsError(f"the certificate of {address} is not accepted: {error.verify_message}")


def _refused_by_peer(error: ssl.SSLError, address: Address, *, shown: bool) -> PulsarError | None:
    """Say why the peer gave up: an alert says it. What Java does not trust it calls an internal error."""
    reason = error.reason or ""
    if "ALERT" not in reason:
        return None
    said = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if shown or "certificate" in said or "unknown ca" in said:
        return AuthError(
            f"{address} does not accept this client's certificate: {said}",
            advice="Check the files of pulsar.client.tlsCertificateFilePath and tlsKeyFilePath, that the "
            "certificate has not expired, and that its authority is known to the broker",
        )
    return TlsError(f"{address} broke the TLS handshake off: {said}")


def _no_tls(address: Address) -> TlsError:
    return TlsError(f"{address} does not speak TLS", advice="Write pulsar:// in service.url, or its TLS port")


def _speaks_tls(address: Address, deadline: Deadline) -> bool:
    context = tls_context(TlsOptions(allow_insecure=True))
    try:
        with _connect_for_tls(address, context, deadline) as wrapped:
            _shake_hands(wrapped, address, deadline)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it wants another kind of TLS than this one
    except (PulsarError, OSError):
        return False
    return True


def _speaks_plainly(address: Address, deadline: Deadline) -> bool:
    """Whether a broker there answers CONNECT without TLS: with a frame, whose length is below 16 MiB."""
    try:
        with _connect(address, deadline) as opened:
            opened.settimeout(max(deadline.left, 0.001))
            opened.sendall(commands.connect("pulsar-spark"))
            return opened.recv(1) == b"\0"
    except (PulsarError, OSError):
        return False
