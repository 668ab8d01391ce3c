"""Translates protocols and cipher suites of TLS from Java's (standard) names into OpenSSL's."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping

from pulsar_spark.errors import OptionError

# Older ones are refused whatever a user says.
PROTOCOLS: Mapping[str, ssl.TLSVersion] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

# OpenSSL has the same names for the suites of TLS 1.3.
_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}
_CIPHERS = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}


def has_suite(name: str) -> bool:
    """Whether this Python's OpenSSL has the suite that Java calls ``name``."""
    if name in _TLS_1_3:
        return True
    known = _openssl_name(name)
    return known is not None and not _choose(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [known])


def restrict(context: ssl.SSLContext, protocols: Collection[str], suites: Collection[str]) -> None:
    """Restrict ``context`` to these protocols and cipher suites; TLS 1.2 or newer in any case.

    Python cannot disable single suites of TLS 1.3, so TLS 1.3 is used only if all of its suites are named
    that OpenSSL would offer.

    Args:
        context: of a client.
        protocols: keys of :data:`PROTOCOLS`; none: all of them.
        suites: names for which :func:`has_suite` is true; none: OpenSSL's own choice.

    Raises:
        OptionError: no suite belongs to one of the protocols, suites of TLS 1.3 are missing, or this Python's
            OpenSSL lacks one.
    """
    new = {name for name in suites if name in _TLS_1_3}
    old = [known for name in suites if (known := _openssl_name(name)) is not None]
    allowed = {PROTOCOLS[name] for name in protocols or PROTOCOLS}
    if suites and not new:
        allowed.discard(ssl.TLSVersion.TLSv1_3)
    if suites and not old:
        allowed.discard(ssl.TLSVersion.TLSv1_2)
    if not allowed:
        raise OptionError(
            "no cipher suite of tlsCiphers belongs to a version of tlsProtocols",
            advice="TLS_AES_... and TLS_CHACHA20_... are for TLSv1.3, TLS_..._WITH_... for TLSv1.2",
        )
    if lacking := old and _choose(context, old):
        raise OptionError(
            "the OpenSSL of this Python does not have these suites of tlsCiphers: "
            f"{', '.join(sorted(lacking))}",
            advice="Leave them out",
        )
    missing = {each["name"] for each in context.get_ciphers() if each["name"] in _TLS_1_3} - new
    if new and missing and ssl.TLSVersion.TLSv1_3 in allowed:
        raise OptionError(
            f"tlsCiphers lacks {', '.join(sorted(missing))}, which Python cannot disable in TLSv1.3",
            advice="Add it, or set tlsProtocols to TLSv1.2 and use only suites of TLSv1.2",
        )
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _choose(context: ssl.SSLContext, names: list[str]) -> set[str]:
    """Let OpenSSL choose among these suites of TLS 1.2; return those that it lacks, which it ignores."""
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:  # it lacks all of them
        return set(names)
    return set(names) - {each["name"] for each in context.get_ciphers()}


def _openssl_name(name: str) -> str | None:
    """OpenSSL's name of a suite of TLS 1.2; None for other names. OpenSSL may lack the suite."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not name.startswith("TLS_") or exchange not in _KEY_EXCHANGES or cipher not in _CIPHERS:
        return None
    return _KEY_EXCHANGES[exchange] + _CIPHERS[cipher]
