"""Java's names of protocols and cipher suites, and what a context then offers."""

import shutil
import ssl
import subprocess

import pytest

from pulsar_spark.client.net.tls_suites import PROTOCOLS, has_suite, restrict
from pulsar_spark.errors import OptionError
from tests.loops import for_each

NEW = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
OLD = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

# What Java 17 offers by default, but for what OpenSSL lacks: static ECDH, and DSS.
OF_JAVA = [
    *NEW,
    *(
        f"TLS_{exchange}_WITH_{cipher}"
        for exchange, ciphers in {
            "ECDHE_ECDSA": ("AES_256_CBC_SHA384", "AES_128_CBC_SHA256", "CHACHA20_POLY1305_SHA256"),
            "ECDHE_RSA": ("AES_256_CBC_SHA384", "AES_128_CBC_SHA256", "CHACHA20_POLY1305_SHA256"),
            "DHE_RSA": ("AES_256_CBC_SHA256", "AES_128_CBC_SHA256", "CHACHA20_POLY1305_SHA256"),
            "RSA": ("AES_256_CBC_SHA256", "AES_128_CBC_SHA256"),
        }.items()
        for cipher in (
            *ciphers,
            "AES_256_GCM_SHA384",
            "AES_128_GCM_SHA256",
            "AES_256_CBC_SHA",
            "AES_128_CBC_SHA",
        )
    ),
]


def context_of(protocols=(), suites=()):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    restrict(context, protocols, suites)
    return context


def offered(context):
    """Names of OpenSSL, of TLS 1.2."""
    return [each["name"] for each in context.get_ciphers() if each["name"] not in NEW]


@for_each("name", OF_JAVA)
def test_what_java_offers_is_known(name):
    assert has_suite(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "TLS_",
        "TLS_AES_128_CCM_SHA256",
        "TLS_RSA_WITH_NULL_SHA",
        "TLS_RSA_WITH_RC4_128_MD5",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA256",  # of parts that there are
        "ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ALL",
        "SSL_RSA_WITH_3DES_EDE_CBC_SHA",
    ],
)
def test_what_is_not_known(name):
    assert not has_suite(name)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it compares with OpenSSL's command")
def test_the_names_are_those_of_openssl():
    """Another list of them: all that the command has and Java knows, by the standard's names."""
    said = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL"], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in said.stdout.splitlines()]
    names = {line[0]: line[2] for line in lines if len(line) > 2}
    compared = [name for name in OF_JAVA if name in names and name not in NEW]
    assert len(compared) > 20
    for name in compared:
        assert offered(context_of(suites=[name])) == [names[name]]


def test_by_default_openssl_chooses():
    context = context_of()
    assert (context.minimum_version, context.maximum_version) == (TLS_1_2, TLS_1_3)
    usual = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert context.get_ciphers() == usual.get_ciphers()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_one_protocol(name):
    context = context_of([name])
    assert context.minimum_version == context.maximum_version == PROTOCOLS[name]


def test_suites_of_one_protocol_are_for_that_alone():
    context = context_of(suites=[OLD, "TLS_RSA_WITH_AES_128_CBC_SHA"])
    assert context.minimum_version == context.maximum_version == TLS_1_2
    assert offered(context) == ["ECDHE-RSA-AES128-GCM-SHA256", "AES128-SHA"]
    context = context_of(suites=NEW)
    assert context.minimum_version == context.maximum_version == TLS_1_3


def test_suites_of_both():
    context = context_of(suites=[*NEW, OLD])
    assert (context.minimum_version, context.maximum_version) == (TLS_1_2, TLS_1_3)
    assert offered(context) == ["ECDHE-RSA-AES128-GCM-SHA256"]
    context = context_of(["TLSv1.2"], [*NEW, OLD])
    assert context.maximum_version == TLS_1_2


def test_suites_that_python_cannot_leave_out_are_not_left_out_in_silence():
    with pytest.raises(OptionError, match="lacks TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256"):
        context_of(suites=["TLS_AES_256_GCM_SHA384", OLD])
    # Where TLS 1.3 is not spoken none of them is used.
    context_of(["TLSv1.2"], ["TLS_AES_256_GCM_SHA384", OLD])


@pytest.mark.parametrize(("protocol", "suites"), [("TLSv1.2", NEW), ("TLSv1.3", [OLD])])
def test_suites_of_another_protocol(protocol, suites):
    with pytest.raises(OptionError, match="no cipher suite of tlsCiphers belongs"):
        context_of([protocol], suites)


@pytest.mark.parametrize("others", [[], [OLD]])
def test_a_suite_that_this_openssl_lacks(others):
    """As where tasks have another OpenSSL than the driver."""
    with pytest.raises(
        OptionError, match="does not have these suites of tlsCiphers: ECDHE-RSA-AES256-SHA256"
    ):
        context_of(suites=["TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA256", *others])
