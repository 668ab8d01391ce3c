"""A TCP proxy on the loopback interface that breaks connections in exactly the ways a test asks for.

It runs on an event loop in a thread of its own. The public methods hand their work to that loop and return
when it is done, so that a test knows what has happened by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import socket
import struct
import threading
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

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

        with Proxy(broker.service_url, cuts=[Cut(100), None, Cut(0)]) as proxy:
            client = pulsar.Client(proxy.service_url)

    Attributes:
        service_url: where clients connect to.
        connections: number of connections accepted so far.
        forwarded: number of bytes sent on so far, for each direction.
        damaged: number of bytes changed so far.
    """

    def __init__(self, target: str, *, cuts: Iterable[Cut | None] = ()) -> None:
        """Listen on a free port; forward to `target`, a URL such as `pulsar://127.0.0.1:6650`.

        `cuts` says what happens to the first, second, ... connection; None leaves one alone, and so does the
        end of `cuts`.
        """
        url = urlsplit(target)
        if url.hostname is None or url.port is None:
            raise ValueError(f"{target!r} names no host and port")
        self._target = (url.hostname, url.port)
        self._cuts = iter(cuts)
        self._truncations: dict[Direction, Cut] = {}
        self._damages: dict[Direction, bytes] = {}
        self._links: set[_Link] = set()
        self._delay = 0.0
        self._flowing = {direction: asyncio.Event() for direction in Direction}
        for event in self._flowing.values():
            event.set()
        self.connections = 0
        self.forwarded = dict.fromkeys(Direction, 0)
        self.damaged = 0

        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.service_url = f"{url.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._accept(), self._loop)

    def __enter__(self) -> Proxy:
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
        self._do(self._cut_all(ending))

    def cut_next(self, *cuts: Cut | None) -> None:
        """Set what happens to the next connections, after those that have their cuts already."""
        self._do(self._cut_next(cuts))

    def truncate_next(self, count: int, direction: Direction, ending: Ending = Ending.FIN) -> None:
        """Deliver only `count` bytes from the next chunk in `direction` on; cut the connection it came on."""
        self._do(self._truncate_next(Cut(count, direction, ending)))

    def damage_next(self, text: bytes, direction: Direction = Direction.TO_BROKER) -> None:
        """Change a byte of the next chunk in a direction that has these bytes: their last one."""
        self._do(self._damage_next(text, direction))

    def stall(self, *directions: Direction) -> None:
        """Forward nothing in these directions (none named: both), with connections kept open."""
        self._do(self._set_flowing(directions or tuple(Direction), flowing=False))

    def resume(self) -> None:
        """Forward again, beginning with what came meanwhile."""
        self._do(self._set_flowing(tuple(Direction), flowing=True))

    def delay(self, seconds: float) -> None:
        """Hold each chunk (64 KiB at most) for `seconds`, in both directions; 0 ends that."""
        self._do(self._set_delay(seconds))

    def close(self) -> None:
        """Stop listening, end all connections, end the thread. May be called again."""
        if self._loop.is_closed():
            return
        self._do(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._listener.close()

    def _do(self, work: Coroutine[None, None, _T]) -> _T:
        """Have `work` done on the proxy's loop and wait for it, a minute at most."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60.0)

    # Everything from here on runs on the proxy's loop.

    async def _cut_all(self, ending: Ending) -> None:
        links = list(self._links)
        for link in links:
            link.cut(ending)
        for link in links:
            await link.ended.wait()

    async def _cut_next(self, cuts: Iterable[Cut | None]) -> None:
        self._cuts = itertools.chain(self._cuts, cuts)

    async def _truncate_next(self, cut: Cut) -> None:
        self._truncations[cut.direction] = cut

    async def _damage_next(self, text: bytes, direction: Direction) -> None:
        self._damages[direction] = text

    def _damaged(self, data: bytes, direction: Direction) -> bytes:
        text = self._damages.get(direction)
        if text is None or text not in data:
            return data
        del self._damages[direction]
        self.damaged += 1
        at = data.index(text) + len(text) - 1
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    async def _set_flowing(self, directions: Iterable[Direction], *, flowing: bool) -> None:
        for direction in directions:
            if flowing:
                self._flowing[direction].set()
            else:
                self._flowing[direction].clear()

    async def _set_delay(self, seconds: float) -> None:
        self._delay = seconds

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        serving = set()  # The loop keeps only weak references to its tasks.
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            self.connections += 1
            task = asyncio.create_task(self._serve(client, next(self._cuts, None)))
            serving.add(task)
            task.add_done_callback(serving.discard)

    async def _serve(self, client: socket.socket, cut: Cut | None) -> None:
        """Forward one connection until it ends."""
        with client, socket.socket() as broker:
            broker.setblocking(False)
            try:
                await self._loop.sock_connect(broker, self._target)
            except OSError:
                _reset(client)
                return
            pumps = [
                asyncio.create_task(self._pump(client, broker, Direction.TO_BROKER, cut)),
                asyncio.create_task(self._pump(broker, client, Direction.TO_CLIENT, cut)),
            ]
            link = _Link(pumps)
            self._links.add(link)
            try:
                ending = await link.wait()
            finally:
                self._links.discard(link)
            if ending is Ending.RST:
                _reset(client)
                _reset(broker)
            link.ended.set()
            if ending is Ending.FIN:
                await asyncio.gather(self._finish(client), self._finish(broker))

    async def _pump(
        self, source: socket.socket, sink: socket.socket, direction: Direction, cut: Cut | None
    ) -> None:
        """Forward one direction until its source ends.

        Raises:
            _CutReachedError: when `cut`, or a truncation that was asked for, says so.
            OSError: when either end is reset.
        """
        left = cut.after if cut and cut.direction is direction else None
        ending = cut.ending if cut else Ending.FIN
        while left != 0:
            data = await self._loop.sock_recv(source, _CHUNK)
            truncation = self._truncations.pop(direction, None) if data else None
            if truncation:
                left, ending = truncation.after, truncation.ending
            await asyncio.sleep(self._delay)
            await self._flowing[direction].wait()
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            data = self._damaged(data[:left], direction)
            self.forwarded[direction] += len(data)
            await self._loop.sock_sendall(sink, data)
            left = None if left is None else left - len(data)
        raise _CutReachedError(ending)

    async def _finish(self, end: socket.socket) -> None:
        """Send FIN and read until the peer has done so too.

        Closing at once would answer what the peer still sends with RST, which may destroy what was delivered.
        """
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)
            while await self._loop.sock_recv(end, _CHUNK):
                pass


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


def _reset(end: socket.socket) -> None:
    """Close a connection with RST: no lingering."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
