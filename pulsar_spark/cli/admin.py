"""``pulsar_spark admin``: show and change topics, subscriptions and policies.

It sends what the pages ask a reader to do to the admin service, for those without ``pulsar-admin``. Answers
are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from pulsar_spark.cli.admin_arguments import add_admin_arguments, admin_of
from pulsar_spark.client import Admin, namespace_parts
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName

# What a change returns.
_DONE = object()

_DESCRIPTION = """
Show and change topics, subscriptions and policies of namespaces. Without a new value, partitions, retention,
deduplication and policy show the present one.
"""


def add_command(commands: Any) -> None:
    """Add ``admin`` to the subparsers of a command line."""
    parser = commands.add_parser(
        "admin", help="show and change topics, subscriptions and policies", description=_DESCRIPTION
    )
    add_admin_arguments(parser)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, text: str, takes: str, act: Any) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
        added.add_argument(takes, metavar="TENANT/NS" if takes == "namespace" else takes.upper())
        added.set_defaults(run=lambda parsed: _print(act(admin_of(parsed), parsed)))
        return added

    action("topics", "list the topics of a namespace", "namespace", _topics)
    partitions = action("partitions", "show partitions, or create a partitioned topic", "topic", _partitions)
    partitions.add_argument("number", nargs="?", type=int, help="create the topic with this many partitions")
    action("stats", "show statistics of a topic and its subscriptions", "topic", _stats)
    action("stats-internal", "show ledgers and cursors of a topic", "topic", _internal_stats)
    action("subscriptions", "list the subscriptions of a topic", "topic", _subscriptions)
    unsubscribe = action("unsubscribe", "remove a subscription from a topic", "topic", _unsubscribe)
    unsubscribe.add_argument("subscription", metavar="SUBSCRIPTION")
    action("compact", "compact a topic", "topic", _compact)
    action("unload", "close a topic; clients open it again", "topic", _unload)
    retention = action(
        "retention", "show or set how long acknowledged messages are kept", "namespace", _retention
    )
    retention.add_argument("--minutes", type=int, help="with --megabytes; -1 is without limit")
    retention.add_argument("--megabytes", type=int, help="with --minutes; -1 is without limit")
    deduplication = action("deduplication", "show or set deduplication", "namespace", _deduplication)
    deduplication.add_argument("enabled", nargs="?", choices=("true", "false"))
    policy = action("policy", "show or set a policy by its name in the HTTP API", "namespace", _policy)
    policy.add_argument("name", metavar="NAME", help="such as messageTTL, publishRate, permissions/ROLE")
    policy.add_argument("value", nargs="?", help="the new value, in JSON")
    grant = action("grant", "let a role use a topic", "topic", _grant)
    grant.add_argument("role", metavar="ROLE")
    grant.add_argument("permissions", nargs="+", choices=("consume", "produce"))


def _print(answer: Any) -> None:
    """Print what is shown. The answer to a change is empty, and so is that about a policy that is not set."""
    if answer is None:
        text = "not set: the brokers' configuration decides"
    else:
        text = "done" if answer is _DONE else json.dumps(answer, indent=2)
    sys.stdout.write(f"{text}\n")


def _topics(admin: Admin, given: argparse.Namespace) -> list[str]:
    return list(map(str, admin.topics(given.namespace)))


def _partitions(admin: Admin, given: argparse.Namespace) -> Any:
    topic = TopicName.parse(given.topic)
    if given.number is not None:
        admin.call("PUT", *topic, "partitions", body=given.number)
        return _DONE
    return _count_partitions(admin, topic)


def _count_partitions(admin: Admin, topic: TopicName) -> Any:
    """The number of partitions; 0 for a topic that is not partitioned or does not exist."""
    found = admin.call("GET", *topic, "partitions")
    return found.get("partitions", 0) if isinstance(found, dict) else 0


def _stats(admin: Admin, given: argparse.Namespace) -> Any:
    return _statistics(admin, given, "stats")


def _internal_stats(admin: Admin, given: argparse.Namespace) -> Any:
    return _statistics(admin, given, "internalStats")


def _statistics(admin: Admin, given: argparse.Namespace, kind: str) -> Any:
    topic = TopicName.parse(given.topic)
    is_partitioned = _count_partitions(admin, topic) != 0
    return admin.call("GET", *topic, f"partitioned-{kind}" if is_partitioned else kind)


def _subscriptions(admin: Admin, given: argparse.Namespace) -> Any:
    return admin.subscriptions(TopicName.parse(given.topic))


def _unsubscribe(admin: Admin, given: argparse.Namespace) -> Any:
    admin.remove_subscription(TopicName.parse(given.topic), given.subscription)
    return _DONE


def _compact(admin: Admin, given: argparse.Namespace) -> Any:
    admin.call("PUT", *TopicName.parse(given.topic), "compaction")
    return _DONE


def _unload(admin: Admin, given: argparse.Namespace) -> Any:
    admin.call("PUT", *TopicName.parse(given.topic), "unload")
    return _DONE


def _retention(admin: Admin, given: argparse.Namespace) -> Any:
    if given.minutes is None and given.megabytes is None:
        return _show(admin, given, "retention")
    if given.minutes is None or given.megabytes is None:
        raise OptionError(
            "--minutes and --megabytes are set together", advice="Give both; -1 is without limit"
        )
    limits = {"retentionTimeInMinutes": given.minutes, "retentionSizeInMB": given.megabytes}
    return _set(admin, given, "retention", limits)


def _deduplication(admin: Admin, given: argparse.Namespace) -> Any:
    if given.enabled is None:
        return _show(admin, given, "deduplication")
    return _set(admin, given, "deduplication", given.enabled == "true")


def _policy(admin: Admin, given: argparse.Namespace) -> Any:
    if given.value is None:
        return _show(admin, given, given.name)
    try:
        value = json.loads(given.value)
    except ValueError as error:
        raise OptionError(
            f"the value {given.value[:100]!r} is not JSON: {error}", advice="Text is written in double quotes"
        ) from None
    return _set(admin, given, given.name, value)


def _grant(admin: Admin, given: argparse.Namespace) -> Any:
    parts = *TopicName.parse(given.topic), "permissions", given.role
    admin.call("POST", *parts, body=given.permissions)
    return _DONE


def _show(admin: Admin, given: argparse.Namespace, policy: str) -> Any:
    return admin.call("GET", "namespaces", *namespace_parts(given.namespace), *policy.split("/"))


def _set(admin: Admin, given: argparse.Namespace, policy: str, value: object) -> Any:
    parts = "namespaces", *namespace_parts(given.namespace), *policy.split("/")
    admin.call("POST", *parts, body=value)
    return _DONE
