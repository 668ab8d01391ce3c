"""The arguments of commands that connect: addresses and logins, named as in pulsar-admin."""

from __future__ import annotations

import argparse

from pulsar_spark.client import Admin, Credentials, Identity, TlsOptions
from pulsar_spark.errors import OptionError, UnsupportedError
from pulsar_spark.ids import TopicName


def add_admin_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the admin service's address and the login to a command's parser."""
    parser.add_argument(
        "--admin-url",
        default="http://localhost:8080",
        metavar="URL",
        help="admin service (default: %(default)s)",
    )
    add_login_arguments(parser)


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the login to a command's parser."""
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
    return Admin(arguments.admin_url, identity=_identity(arguments))


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
    """Returns the login and the TLS settings.

    Args:
        with_tls: prefix of a URL with TLS.
    """
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


def _identity(arguments: argparse.Namespace) -> Identity:
    login = login_of(arguments, arguments.admin_url, "https://")
    try:
        return Identity(*login)
    except OptionError as error:
        advice = (
            "docs/security.md lists the authentication plugins, such as tls with "
            "tlsCertFile:PATH,tlsKeyFile:PATH"
        )
        raise OptionError(error.what, advice=advice) from None
