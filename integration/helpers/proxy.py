"""A TCP proxy on the loopback interface that breaks connections in exactly the ways a test asks for.

Subclasses (`proxies`) choose where a connection goes, and change the bytes that are passed on. The proxy
runs on an event loop in a thread of its own. The public methods hand their work to that loop and return when
it is done, so that a test knows what has happened by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import socket
import ssl
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")

# Bytes taken from a connection at once.
_CHUNK = 1 << 16


class Direction(enum.Enum):
    """The way bytes go."""

    TO_BROKER = "to broker"
    TO_CLIENT = "to client"


class Ending(enum.Enum):
    """How a cut looks to both ends.

    FIN is an orderly end of the stream. RST is `connection reset by peer`: as with a real one, an end may
    lose what was delivered to it and it has not read yet.
    """

    FIN = "fin"
    RST = "rst"


@dataclass(frozen=True, slots=True)
class Cut:
    """End a connection as soon as exactly `after` bytes were delivered in one direction."""

    after: int
    direction: Direction = Direction.TO_CLIENT
    ending: Ending = Ending.FIN


class Proxy:
    """Forwards every connection to one address, until a test says otherwise.

        with Proxy(broker.service_url) as proxy:
            proxy.cut_next(Cut(100), Cut(0))
            client = pulsar.Client(proxy.service_url)

    Attributes:
        service_url: where clients connect to.
        connections: number of connections accepted so far.
        forwarded: number of bytes sent on so far, for each direction.
        damaged: number of bytes changed so far.
        descriptors: file descriptors of the connections that all proxies of this process forward now.
    """

    descriptors: ClassVar[set[int]] = set()

    def __init__(self, target: str, *, context: ssl.SSLContext | None = None) -> None:
        """Listen on a free port; forward to `target`, a URL such as `pulsar://127.0.0.1:6650`.

        With `context` clients have to speak TLS.
        """
        url = urlsplit(target)
        if url.hostname is None or url.port is None:
            raise ValueError(f"{target!r} names no host and port")
        self._target = (url.hostname, url.port)
        self._cuts: Iterator[Cut] = iter(())
        self._damages: dict[Direction, bytes] = {}
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()  # a stream only has a weak reference to its reader
        self._flowing = {direction: asyncio.Event() for direction in Direction}
        for event in self._flowing.values():
            event.set()
        self.connections = 0
        self.forwarded = dict.fromkeys(Direction, 0)
        self.damaged = 0

        listener = socket.create_server(("127.0.0.1", 0))
        scheme = url.scheme if context is None else "pulsar+ssl"
        self.service_url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._wait_for(asyncio.start_server(self._accept, sock=listener, ssl=context))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def open_connections(self) -> int:
        """Number of connections that are being forwarded now."""
        return len(self._links)

    def cut_all(self, ending: Ending = Ending.FIN) -> None:
        """End all connections that were accepted by now; what the proxy still held of them is lost."""
        self._wait_for(self._cut_all(ending))

    def cut_next(self, *cuts: Cut) -> None:
        """Set the cuts of the next connections, after those that have one already."""
        self._do(lambda: setattr(self, "_cuts", itertools.chain(self._cuts, cuts)))

    def damage_next(self, text: bytes, direction: Direction = Direction.TO_BROKER) -> None:
        """Change a byte of the next chunk in a direction that has these bytes: their last one."""
        self._do(lambda: self._damages.update({direction: text}))

    def stall(self, *directions: Direction) -> None:
        """Forward nothing in these directions (none named: both), with connections kept open."""
        self._do(lambda: [self._flowing[each].clear() for each in directions or Direction])

    def resume(self) -> None:
        """Forward again, beginning with what came meanwhile."""
        self._do(lambda: [each.set() for each in self._flowing.values()])

    def close(self) -> None:
        """Stop listening, end all connections, end the thread. May be called again."""
        if self._loop.is_closed():
            return
        self._wait_for(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Callable[[], object]) -> None:
        """Have something done on the proxy's loop and wait for it."""

        async def done() -> None:
            work()

        self._wait_for(done())

    def _wait_for(self, work: Coroutine[None, None, _T]) -> _T:
        """Have `work` done on the proxy's loop and wait for it, a minute at most."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60.0)

    # Everything from here on runs on the proxy's loop; the first three are for subclasses.

    async def route(self, source: StreamReader, number: int) -> tuple[tuple[str, int], bytes] | None:
        """Return where a client's connection goes, and what is sent there first; None ends the connection."""
        return self._target, b""

    async def read(self, source: StreamReader) -> bytes:
        """Return the next bytes to pass on; none at the end."""
        return await source.read(_CHUNK)

    def change(self, data: bytes, direction: Direction, number: int) -> bytes:
        """Return what is passed on for these bytes of a connection, which may be nothing."""
        text = self._damages.get(direction)
        if text is None or text not in data:
            return data
        del self._damages[direction]
        self.damaged += 1
        at = data.index(text) + len(text) - 1
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    async def _cut_all(self, ending: Ending) -> None:
        links = list(self._links)
        for link in links:
            link.cut(ending)
        for link in links:
            await link.ended.wait()

    async def _cancel_all(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: StreamReader, client: StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, client, self.connections, next(self._cuts, None)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: StreamReader, client: StreamWriter, number: int, cut: Cut | None) -> None:
        """Forward one connection until it ends."""
        with contextlib.suppress(asyncio.CancelledError, EOFError, OSError), contextlib.closing(client):
            way = await self.route(reader, number)
            if way is None:
                return
            try:
                answers, broker = await asyncio.open_connection(*way[0])
            except OSError:
                _reset(client)
                return
            with contextlib.closing(broker), self._noted(client, broker):
                broker.write(way[1])
                requests = self._pump(reader, broker, Direction.TO_BROKER, cut, number)
                await self._forward(
                    [requests, self._pump(answers, client, Direction.TO_CLIENT, cut, number)],
                    {reader: client, answers: broker},
                )

    @contextlib.contextmanager
    def _noted(self, *ends: StreamWriter) -> Iterator[None]:
        descriptors = {end.get_extra_info("socket").fileno() for end in ends}
        self.descriptors.update(descriptors)
        try:
            yield
        finally:
            self.descriptors.difference_update(descriptors)

    async def _forward(
        self, pumps: list[Coroutine[None, None, None]], ends: dict[StreamReader, StreamWriter]
    ) -> None:
        link = _Link([asyncio.create_task(pump) for pump in pumps])
        self._links.add(link)
        try:
            ending = await link.wait()
        finally:
            self._links.discard(link)
        if ending is Ending.RST:
            for end in ends.values():
                _reset(end)
        link.ended.set()
        if ending is Ending.FIN:
            await asyncio.gather(*(_finish(reader, end) for reader, end in ends.items()))

    async def _pump(
        self, source: StreamReader, sink: StreamWriter, direction: Direction, cut: Cut | None, number: int
    ) -> None:
        """Forward one direction until its source ends.

        Raises:
            _CutReachedError: `cut` says so.
            OSError: either end is reset.
        """
        sink.transport.set_write_buffer_limits(0)  # drain() returns when the system has all
        left = cut.after if cut and cut.direction is direction else None
        while left != 0:
            data = await self.read(source)
            await self._flowing[direction].wait()
            if not data and sink.can_write_eof():
                sink.write_eof()
                return
            if not data:
                break
            data = self.change(data[:left], direction, number)
            self.forwarded[direction] += len(data)
            sink.write(data)
            await sink.drain()
            left = None if left is None else left - len(data)
        raise _CutReachedError(cut.ending if cut else Ending.FIN)


class _CutReachedError(Exception):
    """The number of bytes after which a connection was to be cut has been delivered."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


@dataclass(eq=False)
class _Link:
    """One forwarded connection; `ended` is set once both of its ends were told."""

    pumps: list[asyncio.Task[None]]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _cut: Ending | None = None

    def cut(self, ending: Ending) -> None:
        self._cut = ending
        for pump in self.pumps:
            pump.cancel()

    async def wait(self) -> Ending | None:
        """Wait for the end; return how to pass it on, None when both ends have had it."""
        try:
            await asyncio.wait(self.pumps, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for pump in self.pumps:
                pump.cancel()
            results = await asyncio.gather(*self.pumps, return_exceptions=True)
        if self._cut:
            return self._cut
        for result in results:
            if isinstance(result, _CutReachedError):
                return result.ending
            if isinstance(result, OSError):
                return Ending.RST
        return None


async def _finish(reader: StreamReader, end: StreamWriter) -> None:
    """Send FIN and read until the peer has done so too.

    Closing at once would answer what the peer still sends with RST, which may destroy what was delivered.
    """
    with contextlib.suppress(OSError):
        if end.can_write_eof():
            end.write_eof()
            while await reader.read(_CHUNK):
                pass


def _reset(end: StreamWriter) -> None:
    """Close a connection with RST: no lingering."""
    with contextlib.suppress(OSError):  # this end is closed already
        opened = end.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.transport.abort()
