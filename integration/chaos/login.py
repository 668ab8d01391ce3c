"""A streaming query outlives its token, of which a file always has a fresh one, as platforms renew them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.chaos.messages import numbered
from integration.fixtures.spark import PulsarInSpark, await_rows
from integration.helpers.background import again_and_again
from integration.helpers.local_spark import local_spark
from integration.helpers.secured import ADMIN, Secured, open_secured

_TOPIC = "persistent://public/default/login"
_LIFETIME = 30.0


def login(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Run a query from Pulsar to Pulsar for as long as ``times`` tokens of 30 s live, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_spark(folder, "chaos", {"spark.log.level": "OFF"})
        settings = {"authenticationRefreshCheckSeconds": "5"}
        with open_secured(folder, settings) as secured:
            here = PulsarInSpark(spark, secured.tls_url)
            began = time.monotonic()
            messages = outlive(here, secured, _TOPIC, folder, lifetime=_LIFETIME, times=times)
            yield "query", "tokens of 30 s", "messages", "missing or doubled", "seconds"
            took = f"{time.monotonic() - began:.0f}"
            yield "TLS, token file, one topic to another", times, f"{messages:,}", 0, took
        spark.stop()


@contextmanager
def renewal(secured: Secured, file: Path, lifetime: float) -> Iterator[str]:
    """Keep a file with a fresh token, which is replaced at a quarter of its life; gives the file's URL."""

    def renew() -> None:
        new = file.with_suffix(".new")
        new.write_text(secured.tokens.token(ADMIN, lifetime))
        new.replace(file)

    renew()
    with again_and_again(renew, lifetime / 4):
        yield f"file://{file}"


def outlive(
    here: PulsarInSpark, secured: Secured, topic: str, folder: Path, *, lifetime: float, times: int
) -> int:
    """Copy a topic to another for ``times`` lifetimes of a token; each message must come once, in order.

    Returns:
        How many messages there were.
    """
    copy = f"{topic}-copy"
    for name in (topic, copy):
        secured.broker.admin.create_topic(name)
    sent = 0
    with (
        renewal(secured, folder / "token", lifetime) as token,
        secured.peer() as peer,
    ):
        options = secured.options(params=token)
        rows = here.stream(topic, **options)
        query = here.write_stream(rows.select("value"), folder / "checkpoint", copy, **options).start()
        try:
            until = time.monotonic() + lifetime * times
            while time.monotonic() < until:
                peer.produce(topic, numbered(10, first=sent))
                sent += 10
                await_rows(query, lambda due=sent: secured.broker.admin.stats(copy)["msgInCounter"] >= due)
        finally:
            query.stop()
        assert [each.value for each in peer.read_all(copy)] == [each.value for each in numbered(sent)]
    return sent
