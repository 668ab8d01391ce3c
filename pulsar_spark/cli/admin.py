"""``pulsar_spark admin``: show and change topics, subscriptions and policies.

Replaces ``pulsar-admin`` for the tasks in the documentation. Answers are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pulsar_spark.client import Admin, Credentials, Identity, TlsOptions, namespace_parts
from pulsar_spark.errors import NotAllowedError, OptionError, TopicNotFoundError, UnsupportedError
from pulsar_spark.ids import TopicName

# A command's result if a policy is not set. None is the result of a command that changed something.
_NOT_SET = object()

_DESCRIPTION = """
Show and change topics, subscriptions and policies of namespaces. Without a new value, partitions, retention,
deduplication and policy show the present one.
"""


def add_command(commands: Any) -> None:
    """Adds ``admin`` to the subparsers of a command line."""
    parser = commands.add_parser(
        "admin", help="show and change topics, subscriptions and policies", description=_DESCRIPTION
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, text: str, takes: str, act: Any) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
        added.add_argument(takes, metavar="TENANT/NS" if takes == "namespace" else takes.upper())
        add_admin_arguments(added)
        added.set_defaults(run=lambda parsed: _print(act(admin_of(parsed), parsed)))
        return added

    action("topics", "list the topics of a namespace", "namespace", _topics)
    create = action("create", "create a topic", "topic", _create)
    create.add_argument(
        "number", nargs="?", type=int, help="of partitions, or of segments (default: a topic without)"
    )
    action("delete", "delete a topic that has no producers and consumers", "topic", _delete)
    partitions = action("partitions", "show the number of partitions, or add some", "topic", _partitions)
    partitions.add_argument("number", nargs="?", type=int, help="the new number, larger than the present one")
    stats = action("stats", "show statistics of a topic and its subscriptions", "topic", _stats)
    stats.add_argument("--partitions", action="store_true", help="also those of each partition")
    action("stats-internal", "show ledgers and cursors of a topic", "topic", _internal_stats)
    schemas = action("schemas", "show all versions of a topic's schema, or register one", "topic", _schemas)
    schemas.add_argument("--register", metavar="FILE", type=Path, help="a file of an Avro schema")
    schemas.add_argument("--type", choices=("AVRO", "JSON"), default="AVRO", help="with --register")
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
    policy.add_argument("--remove", action="store_true", help="let the brokers' configuration decide again")
    grant = action("grant", "let a role use a topic", "topic", _grant)
    grant.add_argument("role", metavar="ROLE")
    grant.add_argument("permissions", nargs="+", choices=("consume", "produce"))


def _print(answer: Any) -> None:
    if answer is _NOT_SET:
        text = "not set: the brokers' configuration decides"
    else:
        text = "done" if answer is None else json.dumps(answer, indent=2)
    sys.stdout.write(f"{text}\n")


def _topics(admin: Admin, given: argparse.Namespace) -> list[str]:
    found = admin.topics(given.namespace)
    with suppress(TopicNotFoundError):  # brokers before Pulsar 5 have no scalable topics
        found += sorted(admin.scalable_topics(*namespace_parts(given.namespace)))
    return list(map(str, found))


def _create(admin: Admin, given: argparse.Namespace) -> None:
    topic = _any_topic(given)
    if given.number is not None and given.number < 1:
        raise OptionError(f"{given.number} is not a number of partitions", advice="Give 1 or more")
    try:
        if topic.is_scalable:
            admin.create_scalable(topic, given.number or 1)
        elif given.number is None:
            admin.call("PUT", *topic)
        else:
            admin.call("PUT", *topic, "partitions", body=given.number)
    except NotAllowedError as error:
        raise _exists(admin, topic, given.number, error) from None
    except TopicNotFoundError as error:
        advice = "Check the tenant and the namespace. Scalable topics (topic://) need Pulsar 5"
        raise TopicNotFoundError(error.what, topic=str(topic), advice=advice) from None


def _exists(admin: Admin, topic: TopicName, number: int | None, error: NotAllowedError) -> NotAllowedError:
    """Returns the error that a topic to create exists; its text has the number of partitions or segments."""
    count = _count_partitions(admin, topic)
    unit = "segments" if topic.is_scalable else "partitions"
    advice = "Use it as it is, or choose another name"
    if not topic.is_scalable and number is not None and 0 < count < number:
        advice += f". To add partitions: pulsar_spark admin partitions {topic} {number}"
    return NotAllowedError(f"{error.what}. It has {count or 'no'} {unit}", topic=str(topic), advice=advice)


def _delete(admin: Admin, given: argparse.Namespace) -> None:
    topic = _any_topic(given)
    if topic.is_scalable:
        _scalable(admin, topic, method="DELETE")
    elif _count_partitions(admin, topic):
        admin.call("DELETE", *topic, "partitions")
    else:
        admin.call("DELETE", *topic)


def _partitions(admin: Admin, given: argparse.Namespace) -> Any:
    if given.number is None:
        return _count_partitions(admin, _any_topic(given))
    topic = topic_of(given.topic)
    present = _count_partitions(admin, topic)
    if given.number <= present or not present:
        raise OptionError(
            f"{topic} has {present or 'no'} partitions",
            advice="Pulsar can only add some to a partitioned topic",
        )
    admin.call("POST", *topic, "partitions", body=given.number)
    return None


def _any_topic(given: argparse.Namespace) -> TopicName:
    return TopicName.parse(given.topic, scalable=True)


def _count_partitions(admin: Admin, topic: TopicName) -> Any:
    """Returns the number of partitions or active segments; 0: not partitioned, or no such topic."""
    if topic.is_scalable:
        segments = _scalable(admin, topic)["segments"].values()
        return sum(segment["state"] == "ACTIVE" for segment in segments)
    found = admin.call("GET", *topic, "partitions")
    return found.get("partitions", 0) if isinstance(found, dict) else 0


def _scalable(admin: Admin, topic: TopicName, *what: str, method: str = "GET") -> Any:
    return admin.call(method, "scalable", topic.tenant, topic.namespace, topic.local, *what)


def _stats(admin: Admin, given: argparse.Namespace) -> Any:
    topic = _any_topic(given)
    if topic.is_scalable:
        return _scalable(admin, topic, "stats")
    return _statistics(admin, topic, "stats", f"perPartition={json.dumps(given.partitions)}")


def _internal_stats(admin: Admin, given: argparse.Namespace) -> Any:
    return _statistics(admin, topic_of(given.topic), "internalStats")


def _statistics(admin: Admin, topic: TopicName, kind: str, query: str = "") -> Any:
    if _count_partitions(admin, topic):
        return admin.call("GET", *topic, f"partitioned-{kind}", query=query)
    return admin.call("GET", *topic, kind)


def _schemas(admin: Admin, given: argparse.Namespace) -> Any:
    topic = _any_topic(given).base
    place = "schemas", topic.tenant, topic.namespace, topic.local
    if given.register is None:
        return admin.call("GET", *place, "schemas")
    try:
        definition = given.register.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise OptionError(
            f"--register cannot be read: {error}", advice="Name a file of Avro's JSON"
        ) from None
    body = {"type": given.type, "schema": definition, "properties": {}}
    admin.call("POST", *place, "schema", body=body)
    return None


def _subscriptions(admin: Admin, given: argparse.Namespace) -> list[str]:
    return _names_of(admin, _any_topic(given))


def _names_of(admin: Admin, topic: TopicName) -> list[str]:
    return sorted(admin.scalable_subscriptions(topic)) if topic.is_scalable else admin.subscriptions(topic)


def _unsubscribe(admin: Admin, given: argparse.Namespace) -> None:
    topic = _any_topic(given)
    # For a missing subscription brokers report success, or an error that names the topic. So check first.
    names = _names_of(admin, topic)
    if given.subscription not in names:
        raise OptionError(
            f"there is no subscription {given.subscription!r} on {topic}",
            advice=f"It has {', '.join(map(repr, names))}" if names else "It has no subscriptions",
        )
    remove = admin.release_scalable if topic.is_scalable else admin.remove_subscription
    remove(topic, given.subscription)


def _compact(admin: Admin, given: argparse.Namespace) -> None:
    admin.call("PUT", *topic_of(given.topic), "compaction")


def _unload(admin: Admin, given: argparse.Namespace) -> None:
    admin.call("PUT", *topic_of(given.topic), "unload")


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
    try:
        return _show_or_change(admin, given)
    except NotAllowedError as error:
        raise OptionError(
            f"{given.name!r} cannot be used so: {error.what}",
            advice="Names are those of Pulsar's HTTP API, such as messageTTL; upper and lower case differ",
        ) from None


def _show_or_change(admin: Admin, given: argparse.Namespace) -> Any:
    if given.remove:
        if given.value is not None:
            raise OptionError("--remove takes no value", advice="Leave one of them out")
        admin.call("DELETE", *_policy_path(given, given.name))
        return None
    if given.value is None:
        return _show(admin, given, given.name)
    try:
        value = json.loads(given.value)
    except ValueError as error:
        raise OptionError(
            f"the value {given.value[:100]!r} is not JSON: {error}", advice="Text is written in double quotes"
        ) from None
    return _set(admin, given, given.name, value)


def _grant(admin: Admin, given: argparse.Namespace) -> None:
    parts = *topic_of(given.topic), "permissions", given.role
    admin.call("POST", *parts, body=given.permissions)


def _show(admin: Admin, given: argparse.Namespace, policy: str) -> Any:
    answer = admin.call("GET", *_policy_path(given, policy))
    return _NOT_SET if answer is None else answer


def _set(admin: Admin, given: argparse.Namespace, policy: str, value: object) -> Any:
    admin.call("POST", *_policy_path(given, policy), body=value)


def _policy_path(given: argparse.Namespace, policy: str) -> tuple[str, ...]:
    if not policy[:1].isalpha():  # a name that begins with a digit would address a bundle of the namespace
        raise OptionError(f"{policy!r} is not the name of a policy", advice="A name is like messageTTL")
    return "namespaces", *namespace_parts(given.namespace), *policy.split("/")


def add_admin_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the admin service's address and the login to a command's parser."""
    parser.add_argument(
        "--admin-url",
        default="http://localhost:8080",
        metavar="URL",
        help="admin service (default: %(default)s)",
    )
    add_login_arguments(parser)


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for authentication and TLS to a command's parser."""
    parser.add_argument("--auth-plugin", metavar="NAME", help="like pulsar.client.authPluginClassName")
    parser.add_argument(
        "--auth-params",
        metavar="PARAMS",
        default="",
        help="like pulsar.client.authParams: file:///... or env:NAME",
    )
    parser.add_argument(
        "--tls-trust-cert-path", metavar="FILE", help="like pulsar.client.tlsTrustCertsFilePath"
    )


def admin_of(arguments: argparse.Namespace) -> Admin:
    """Returns a client of the admin service; raises OptionError for an invalid address or login."""
    login = login_of(arguments, arguments.admin_url, "https://")
    try:
        identity = Identity(*login)
    except OptionError as error:
        advice = (
            "docs/security.md lists the authentication plugins, such as tls with "
            "tlsCertFile:PATH,tlsKeyFile:PATH"
        )
        raise OptionError(error.what, advice=advice) from None
    return Admin(arguments.admin_url, identity=identity)


def topic_of(text: str) -> TopicName:
    """Parses a topic's name, for commands without support for scalable topics.

    Raises:
        OptionError: the text is not a topic's name.
        UnsupportedError: the topic is scalable.
    """
    topic = TopicName.parse(text, scalable=True)
    if topic.is_scalable:
        raise UnsupportedError(
            "this command does not take scalable topics",
            topic=text,
            advice="The actions create, delete, stats, schemas, subscriptions and unsubscribe of "
            "pulsar_spark admin take them, and partitions shows their segments. Pulsar's HTTP API has more: "
            "/admin/v2/scalable",
        )
    return topic


def login_of(arguments: argparse.Namespace, url: str, with_tls: str) -> tuple[Credentials | None, TlsOptions]:
    """Returns the login and the TLS settings; ``with_tls``: prefix of a URL with TLS."""
    plugin = arguments.auth_plugin
    if plugin is None and arguments.auth_params:
        raise OptionError(
            "--auth-params is given without --auth-plugin",
            advice="Give the authentication plugin, such as token",
        )
    if arguments.tls_trust_cert_path is not None and not url.lower().startswith(with_tls):
        raise OptionError(
            "--tls-trust-cert-path has no effect without TLS", advice=f"Begin the URL with {with_tls}"
        )
    credentials = None if plugin is None else Credentials(plugin, arguments.auth_params)
    return credentials, TlsOptions(trust_certs=arguments.tls_trust_cert_path)
