"""Checks the options of login and TLS: refuses invalid options, and finds risks for secrets."""

from __future__ import annotations

from pulsar_spark.client.client import ClientOptions
from pulsar_spark.client.net.auth import Identity
from pulsar_spark.client.net.http import is_in_clear, is_on_this_host
from pulsar_spark.client.net.tls import TlsOptions, context_without_files
from pulsar_spark.errors import OptionError
from pulsar_spark.protocol.lookup import parse_service_url


def check_identity(options: ClientOptions, admin_url: str | None = None) -> None:
    """Raises OptionError for invalid options of login or TLS, without reading files or connecting.

    If the brokers use TLS, the login must not be sent unencrypted to another host, such as the admin service
    at ``admin_url``. Options of TLS are refused if no connection uses them.
    """
    identity = _identity(options)
    context_without_files(options.tls)
    has_tls = _has_tls(options)
    if identity.by_certificate and not has_tls:
        raise OptionError("a login by certificate requires TLS", advice="Write pulsar+ssl:// in service.url")
    if options.tls.proxy is not None and not has_tls:
        raise OptionError(
            "proxyServiceUrl requires TLS: the proxy reads the broker's name in the TLS handshake",
            advice="Write pulsar+ssl:// in service.url",
        )
    others = (admin_url or "", identity.issuer_url or "")
    has_https = any(url.strip().lower().startswith("https:") for url in others)
    if options.tls != TlsOptions() and not has_tls and not has_https:
        raise OptionError(
            "options of TLS are set, but service.url has no TLS, so they have no effect",
            advice="Write pulsar+ssl:// in service.url, or leave out the options that begin with tls",
        )
    if has_tls and identity.sends_secret and admin_url is not None and is_in_clear(admin_url):
        raise OptionError(
            "the login would be sent unencrypted to admin.url, although service.url has TLS",
            advice="Write https:// in admin.url, or leave it out",
        )
    if has_tls and identity.issuer_url is not None and is_in_clear(identity.issuer_url):
        raise OptionError(
            "the client's secret would be sent unencrypted to the OAuth2 issuer, although service.url has "
            "TLS",
            advice="Write https:// in issuerUrl of authParams",
        )


def login_risk(options: ClientOptions) -> str | None:
    """Returns why others can read the login's secret, with advice; None if nobody can.

    Raises OptionError for invalid options of login, or an invalid service URL.
    """
    if not _identity(options).sends_secret:
        return None
    if not _has_tls(options):
        if all(is_on_this_host(f"pulsar://{address}") for address in parse_service_url(options.service_url)):
            return None
        why, cure = "service.url has no TLS", "Write pulsar+ssl:// in service.url"
    elif options.tls.allow_insecure:
        why, cure = "tlsAllowInsecureConnection accepts any certificate", "Set it to false"
    elif not options.tls.verify_hostname:
        why = "tlsHostnameVerificationEnable=false accepts the certificate of any host"
        cure = "Set it to true"
    else:
        return None
    return f"others on the network can read the secret of the login, because {why}. {cure}"


def variables_of_secrets(options: ClientOptions, *more: str | None) -> list[str]:
    """Returns NAME of each ``env:NAME`` among the options for secrets and the option values ``more``."""
    tls, login = options.tls, options.credentials
    stores = [store.password for store in (tls.trust_store, tls.key_store) if store is not None]
    places = [tls.key_password, *stores, None if login is None else login.params, *more]
    return [place.removeprefix("env:") for place in places if place is not None and place.startswith("env:")]


def _has_tls(options: ClientOptions) -> bool:
    return options.service_url.strip().startswith("pulsar+ssl:")


def _identity(options: ClientOptions) -> Identity:
    return Identity(options.credentials, options.tls, options.connection_timeout)
