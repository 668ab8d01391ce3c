import pytest

from pulsar_spark.client import Credentials, TlsOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.parse import parse_sink
from tests.spark.options.parsing import sink, source


def test_the_service_url_is_required():
    with pytest.raises(OptionError, match=r"service\.url is missing"):
        parse_sink({})


@pytest.mark.parametrize(
    "url",
    [
        *("http://user:secret@h:8080", "http://secret@h", "secret", "ftp://secret", "http://h:secret"),
        *("http://h:0/secret", "http://h?token=secret", "http://h1,http://secret", "http://[secret"),
    ],
)
def test_a_bad_admin_url_is_not_repeated(url):
    with pytest.raises(OptionError, match=r"admin\.url") as caught:
        source(admin_url=url)
    assert "secret" not in str(caught.value)
    with pytest.raises(OptionError, match=r"admin\.url"):
        sink(admin_url=url)


def test_how_to_reach_the_cluster():
    client = sink(
        service_url="pulsar+ssl://localhost:6651",
        pulsar_client_authPluginClassName="token",
        pulsar_client_authParams="token:abc",
        pulsar_client_tlsTrustCertsFilePath="/ca.pem",
        pulsar_client_tlsCertificateFilePath="/my.pem",
        pulsar_client_tlsKeyFilePath="/my.key",
        pulsar_client_tlsAllowInsecureConnection="true",
        pulsar_client_tlsHostnameVerificationEnable="false",
        pulsar_client_operationTimeoutMs="1s",
        pulsar_client_connectionTimeoutMs="2s",
        pulsar_client_keepAliveIntervalSeconds="3",
        pulsar_client_connectionMaxIdleSeconds="4",
        pulsar_client_lookupTimeoutMs="5s",
        pulsar_client_maxLookupRedirects="6",
        pulsar_client_listenerName="external",
    ).client
    assert client.service_url == "pulsar+ssl://localhost:6651"
    assert client.credentials == Credentials("token", "token:abc")
    assert client.tls == TlsOptions(
        trust_certs="/ca.pem",
        certificate="/my.pem",
        key="/my.key",
        allow_insecure=True,
        verify_hostname=False,
    )
    assert (client.operation_timeout, client.connection_timeout, client.keep_alive_interval) == (1, 2, 3)
    assert (client.connection_max_idle, client.lookup_timeout, client.max_lookup_redirects) == (4, 5, 6)
    assert client.listener_name == "external"


def test_how_brokers_are_found_by_default():
    client = source().client
    assert (client.connection_max_idle, client.lookup_timeout, client.max_lookup_redirects) == (60, None, 20)
    assert client.listener_name is None


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("connectionMaxIdleSeconds", "0.5", "a time of at least 1 s"),
        ("connectionMaxIdleSeconds", "-1", "a time such as"),
        ("lookupTimeoutMs", "0", "a time of at least 0.001 s"),
        ("lookupTimeoutMs", "25d", "a time of at most 24d"),
        ("maxLookupRedirects", "0", "a whole number from 1"),
        ("listenerName", "", "text that is not empty"),
    ],
)
def test_bounds_of_how_brokers_are_found(name, text, advice):
    with pytest.raises(OptionError, match=f"pulsar.client.{name} is .*It must be {advice}"):
        sink(**{f"pulsar_client_{name}": text})


def test_no_login_and_the_systems_authorities_by_default():
    client = source().client
    assert client.credentials is None
    assert client.tls == TlsOptions()


def test_parameters_of_a_login_need_the_login():
    with pytest.raises(
        OptionError, match=r"authParams is set without .*Set pulsar\.client\.authPluginClassName"
    ):
        sink(pulsar_client_authParams="token:abc")


def test_a_login_that_cannot_be_is_found_at_once():
    with pytest.raises(OptionError, match="names an unknown authentication plugin"):
        source(pulsar_client_authPluginClassName="kerberos")
    with pytest.raises(OptionError, match="a login by TLS requires both"):
        source(pulsar_client_tlsKeyFilePath="/my.key")
