"""``pulsar_spark subscriptions``: list the durable subscriptions of queries, and remove unused ones.

A subscription is used if a checkpoint of Structured Streaming names it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pulsar_spark.cli.admin import add_admin_arguments, admin_of, topic_of
from pulsar_spark.client import Admin, SubscriptionStats, path_of, run_all
from pulsar_spark.errors import BusyError, OptionError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import TopicName

_HEADER = ("SUBSCRIPTION", "TOPIC", "PARTITIONS", "CONNECTED", "BACKLOG", "CHECKPOINT")

_DESCRIPTION = """
List the durable subscriptions that streaming queries made: for each topic, the number of partitions that have
it, whether a query is connected, the backlog in entries, and the checkpoint that references it. The
subscription of a deleted query remains, and the broker keeps all new messages for it. --remove removes the
subscriptions that no checkpoint references and to which no query is connected.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The durable subscription of a streaming query on one topic partition.

    Attributes:
        backlog: number of entries after the subscription's position.
    """

    name: str
    topic: TopicName
    connected: bool
    backlog: int

    @property
    def uuid(self) -> str:
        """Returns the UUID in the name, after the prefix."""
        return self.name[-36:]


def add_command(commands: Any) -> None:
    """Adds ``subscriptions`` to the subparsers of a command line."""
    parser = commands.add_parser(
        "subscriptions",
        help="list the subscriptions of queries, and remove those of deleted queries",
        description=_DESCRIPTION,
    )
    add_admin_arguments(parser)
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="TENANT/NS",
        help="namespace to search; can be repeated (default: public/default)",
    )
    parser.add_argument(
        "--topic", action="append", metavar="TOPIC", help="search only this topic; can be repeated"
    )
    parser.add_argument(
        "--prefix", default="spark-pulsar", help="the queries' subscriptionPrefix (default: %(default)s)"
    )
    parser.add_argument(
        "--subscription", metavar="NAME", help="list and remove only this subscription, on each of its topics"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        type=_folder,
        metavar="DIR",
        help="a checkpoint, or a folder with checkpoints below it; can be repeated",
    )
    parser.add_argument("--partitions", action="store_true", help="list each topic partition by itself")
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--remove", action="store_true", help="remove unused subscriptions; requires --checkpoint"
    )
    output.add_argument(
        "--json", action="store_true", help="print a JSON object a line in place of the table"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Lists the subscriptions, and removes unused subscriptions if requested.

    Raises:
        OSError: a checkpoint cannot be read; nothing was removed.
    """
    if arguments.remove and not arguments.checkpoint:
        raise OptionError(
            "--remove requires --checkpoint", advice="Give the folders of all queries' checkpoints"
        )
    if arguments.topic and arguments.namespace:
        raise OptionError(
            "--topic and --namespace cannot be used together: a topic's name contains its namespace",
            advice="Leave --namespace out",
        )
    admin = admin_of(arguments)
    topics = _topics(admin, arguments.topic or [], arguments.namespace or ["public/default"])
    found = _named(find(admin, topics, arguments.prefix), arguments.subscription)
    # Subscriptions are listed before checkpoints are read. A query's consumer stays connected until the
    # checkpoint names the subscription. So if none was connected when listed, the checkpoint now names it.
    named = None if arguments.checkpoint is None else named_in(arguments.checkpoint)
    rows = _rows(found, named, by_partition=arguments.partitions)
    if arguments.json:
        for row in rows:
            _say(json.dumps(dict(zip(map(str.lower, _HEADER), row, strict=True))))
        return
    _print_table(rows)
    unused = [] if named is None else unused_of(found, named)
    if unused:
        sys.stderr.write("If a folder is a copy, queries that were started after it was made are not in it\n")
    if arguments.remove:
        _remove(admin, unused)
    elif unused:
        _say(f"{len(unused)} unused; run with --remove to remove them")


def _folder(text: str) -> Path:
    if re.match(r"(?!file:)[\w+.-]+://", text):
        raise argparse.ArgumentTypeError(
            f"{text} is a URL, which is not read. Copy the checkpoints here, and name the copy's folder"
        )
    return path_of(text)


def find(admin: Admin, topics: Iterable[TopicName], prefix: str) -> Iterator[Found]:
    """Yields the durable subscriptions named ``<prefix>-<uuid>``; skips topics deleted meanwhile."""
    name = re.compile(re.escape(prefix) + "-" + UUID.pattern)
    topics = list(topics)
    found = run_all([partial(_find_on, admin, topic, name) for topic in topics])
    for topic, answer in zip(topics, found, strict=True):
        if isinstance(answer, TopicNotFoundError):
            continue
        if isinstance(answer, PulsarError):
            raise answer
        for each in sorted(answer):
            yield Found(each.name, topic, each.connected, each.backlog)


def _find_on(admin: Admin, topic: TopicName, name: re.Pattern[str]) -> list[SubscriptionStats]:
    # First only the names, because the answer is small, and most topics have no such subscription.
    if not any(map(name.fullmatch, admin.subscriptions(topic))):
        return []
    return [each for each in admin.stats(topic) if name.fullmatch(each.name) and each.durable]


def _named(found: Iterable[Found], name: str | None) -> list[Found]:
    """Returns the found subscriptions with this name; all if ``name`` is None."""
    named = [each for each in found if name in (None, each.name)]
    if name is not None and not named:
        raise OptionError(
            f"no query has a subscription {name!r} on these topics",
            advice="Run without --subscription to list the names, and select the topics with --namespace or "
            "--topic, and the queries' subscriptionPrefix with --prefix. To remove another subscription, use "
            "pulsar_spark admin unsubscribe",
        )
    return named


def unused_of(found: Iterable[Found], named: dict[str, Path]) -> list[Found]:
    """Returns the subscriptions that no checkpoint names, and that have no consumer on any topic."""
    found = list(found)
    alive = {each.name for each in found if each.connected}
    return [each for each in found if each.name not in alive and each.uuid not in named]


def _topics(admin: Admin, wanted: list[str], namespaces: list[str]) -> list[TopicName]:
    if not wanted:
        return [topic for namespace in dict.fromkeys(namespaces) for topic in admin.topics(namespace)]
    found: dict[TopicName, None] = {}
    for name in map(topic_of, wanted):
        there = [
            topic for topic in admin.topics(f"{name.tenant}/{name.namespace}") if name in (topic, topic.base)
        ]
        if not there:
            raise TopicNotFoundError("the topic does not exist", topic=str(name))
        found.update(dict.fromkeys(there))
    return list(found)


def _rows(
    found: list[Found], named: dict[str, Path] | None, *, by_partition: bool
) -> list[tuple[object, ...]]:
    groups: dict[tuple[TopicName, str], list[Found]] = {}
    for each in found:
        groups.setdefault((each.topic if by_partition else each.topic.base, each.name), []).append(each)
    rows: list[tuple[object, ...]] = []
    for (topic, name), parts in groups.items():
        checkpoint = "not searched" if named is None else str(named.get(parts[0].uuid, "none"))
        connected = any(each.connected for each in parts)
        backlog = sum(each.backlog for each in parts)
        rows.append((name, str(topic), len(parts), connected, backlog, checkpoint))
    return rows


def _print_table(rows: list[tuple[object, ...]]) -> None:
    words = {True: "yes", False: "no"}
    shown = [tuple(words[cell] if isinstance(cell, bool) else str(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(_HEADER, *shown, strict=True)]
    for row in [_HEADER, *shown]:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _remove(admin: Admin, unused: list[Found]) -> None:
    answers = run_all([partial(admin.remove_subscription, each.topic, each.name) for each in unused])
    removed: Counter[tuple[str, TopicName]] = Counter()
    failure = None
    for each, answer in zip(unused, answers, strict=True):
        if isinstance(answer, BusyError):
            _say(f"kept {each.name} on {each.topic}: a query is connected now")
        elif isinstance(answer, TopicNotFoundError):
            _say(f"{each.name} on {each.topic} no longer exists")
        elif isinstance(answer, PulsarError):
            failure = failure or answer
        else:
            removed[each.name, each.topic.base] += 1
    for (name, topic), count in removed.items():
        _say(f"removed {name} from {topic}{f' ({count} partitions)' if count > 1 else ''}")
    _say(f"{removed.total()} removed")
    if failure is not None:
        raise failure


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def named_in(roots: list[Path]) -> dict[str, Path]:
    """Returns the UUIDs of the subscriptions that checkpoints name, each with the checkpoint's folder.

    Every UUID in an offset file counts as a subscription's UUID, so offsets of later versions are understood,
    too. A UUID of something else does no harm, because it can only keep a subscription.

    Args:
        roots: checkpoints, or folders that contain checkpoints at any depth.

    Raises:
        OSError: a folder does not exist, contains no checkpoint (it may not be mounted), or cannot be read.
    """
    found: dict[str, Path] = {}
    for root in roots:
        offsets = 0
        for checkpoint in _checkpoints(root):
            for file in sorted((checkpoint / "offsets").iterdir()):
                if file.name.isdecimal():  # not a checksum or temporary file
                    offsets += 1
                    text = file.read_text(errors="replace")
                    found.update(dict.fromkeys(UUID.findall(text), checkpoint))
        if not offsets:
            raise FileNotFoundError(
                f"there is no checkpoint in {root} or below it. Check that the folder is mounted"
            )
    return found


def _checkpoints(root: Path) -> Iterator[Path]:
    """Yields each checkpoint, a folder that contains ``offsets``; skips Spark's subfolders of checkpoints."""
    seen: set[Path] = set()
    for folder, names, _ in os.walk(root, onerror=_fail, followlinks=True):
        real = Path(folder).resolve()
        if real in seen:  # reached again through a symbolic link
            names.clear()
            continue
        seen.add(real)
        if "offsets" in names:
            yield Path(folder)
            names[:] = [name for name in names if name not in ("offsets", "commits", "sources", "state")]


def _fail(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(
            f"there is no folder {error.filename}. Check its name, and that it is mounted. Without the "
            "checkpoints of all queries nothing is removed; leave out those that you have deleted"
        ) from None
    raise error
