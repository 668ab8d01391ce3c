import pytest

from pulsar_spark.client import Address, KeyStore, TlsOptions
from pulsar_spark.errors import OptionError
from tests.spark.options.parsing import sink, source

SECRET = "secret-31415"


def tls(side=sink, **options):
    """What TLS options become, their names without their scope, for brokers with TLS."""
    given = {f"pulsar_client_{name}": text for name, text in options.items()}
    return side(service_url="pulsar+ssl://localhost", **given).client.tls


def refused_tls(match, **options):
    with pytest.raises(OptionError, match=match) as caught:
        tls(**options)
    assert caught.value.advice
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("side", [source, sink])
def test_stores(side):
    found = tls(
        side,
        tlsTrustStorePath="/trust.p12",
        tlsTrustStorePassword=SECRET,
        tlsKeyStorePath="/key.p12",
        tlsKeyStorePassword="env:PASSWORD",
    )
    assert found == TlsOptions(
        trust_store=KeyStore("/trust.p12", SECRET), key_store=KeyStore("/key.p12", "env:PASSWORD")
    )


def test_a_store_may_have_no_password():
    assert tls(tlsTrustStorePath="/trust.p12") == TlsOptions(trust_store=KeyStore("/trust.p12"))


def test_a_key_with_a_passphrase():
    found = tls(
        tlsCertificateFilePath="/c.pem", tlsKeyFilePath="/k.pem", tlsKeyPassword="file:///run/secrets/key"
    )
    assert found == TlsOptions(certificate="/c.pem", key="/k.pem", key_password="file:///run/secrets/key")


def test_passwords_need_their_files():
    refused_tls(
        "tlsTrustStorePassword is set without .*Set pulsar.client.tlsTrustStorePath",
        tlsTrustStorePassword=SECRET,
    )
    refused_tls(
        "tlsKeyStorePassword is set without .*Set pulsar.client.tlsKeyStorePath", tlsKeyStorePassword=SECRET
    )
    refused_tls("tlsKeyPassword is set without tlsKeyFilePath", tlsKeyPassword=SECRET)
    refused_tls(
        "tlsKeyPassword is set without tlsKeyFilePath", tlsKeyPassword=SECRET, tlsKeyStorePath="/k.p12"
    )


def test_a_passphrase_may_be_of_a_key_that_the_login_names():
    options = sink(
        service_url="pulsar+ssl://localhost",
        pulsar_client_authPluginClassName="tls",
        pulsar_client_authParams="tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
        pulsar_client_tlsKeyPassword=SECRET,
    )
    assert options.client.tls.key_password == SECRET


def test_one_thing_is_not_named_twice():
    refused_tls("are both set", tlsTrustCertsFilePath="/t.pem", tlsTrustStorePath="/t.p12")
    refused_tls(
        "certificate is given twice",
        tlsKeyStorePath="/k.p12",
        tlsCertificateFilePath="/c.pem",
        tlsKeyFilePath="/k.pem",
    )


@pytest.mark.parametrize("name", ["tlsTrustStorePassword", "tlsKeyStorePassword", "tlsKeyPassword"])
def test_a_password_is_not_empty(name):
    refused_tls(f"pulsar.client.{name} is wrong. It must be text", **{name: ""})


@pytest.mark.parametrize(
    ("text", "protocols"),
    [
        ("TLSv1.3", ("TLSv1.3",)),
        ("tlsv1.2", ("TLSv1.2",)),
        (" TLSv1.3 , TLSv1.2,TLSv1.3", ("TLSv1.3", "TLSv1.2")),
    ],
)
def test_protocols(text, protocols):
    assert tls(tlsProtocols=text).protocols == protocols


@pytest.mark.parametrize("text", ["", "TLSv1.1", "TLSv1.2,SSLv3", "TLSv1.2,", "TLS", "1.2"])
def test_protocols_that_are_not_known(text):
    refused_tls(
        "pulsar.client.tlsProtocols is .*It must be (one or both of TLSv1.2, TLSv1.3|names)",
        tlsProtocols=text,
    )


def test_ciphers():
    text = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls_rsa_with_aes_256_cbc_sha,TLS_RSA_WITH_AES_256_CBC_SHA"
    found = tls(tlsCiphers=text)
    assert found.ciphers == ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_CBC_SHA")


@pytest.mark.parametrize("unknown", ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_RSA_WITH_RC4_128_MD5"])
def test_ciphers_that_are_not_known(unknown):
    text = f"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,{unknown}"
    refused_tls(
        f"pulsar.client.tlsCiphers is .*It must be Java's names.*does not have {unknown}", tlsCiphers=text
    )


def test_ciphers_and_protocols_that_do_not_go_together():
    refused_tls(
        "no cipher suite of tlsCiphers belongs",
        tlsProtocols="TLSv1.3",
        tlsCiphers="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    )
    refused_tls("tlsCiphers lacks", tlsCiphers="TLS_AES_256_GCM_SHA384")


def test_a_proxy():
    assert tls(proxyServiceUrl="pulsar+ssl://proxy:443").proxy == Address("proxy", 443, tls=True)
    assert tls(proxyServiceUrl="pulsar+ssl://proxy").proxy == Address("proxy", 6651, tls=True)
    assert tls().proxy is None


@pytest.mark.parametrize(
    "url",
    ["pulsar://proxy:443", "pulsar+ssl://a,b", "https://proxy", "pulsar+ssl://", "pulsar+ssl://h:0", ""],
)
def test_a_proxy_that_is_none(url):
    refused_tls("proxyServiceUrl", proxyServiceUrl=url)


def test_a_proxy_needs_tls():
    with pytest.raises(OptionError, match="proxyServiceUrl requires TLS"):
        sink(pulsar_client_proxyServiceUrl="pulsar+ssl://proxy:443")
