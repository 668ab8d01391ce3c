"""Which options of login and TLS are refused, and which put a secret at risk."""

import pytest

from pulsar_spark.client import ClientOptions, Credentials, TlsOptions, check_identity, login_risk
from pulsar_spark.errors import OptionError
from pulsar_spark.protocol.lookup import Address


def test_a_login_by_certificate_needs_tls():
    tls = TlsOptions(certificate="cert.pem", key="key.pem")
    check_identity(ClientOptions(service_url="pulsar+ssl://localhost", tls=tls))
    check_identity(ClientOptions(service_url="pulsar://localhost"))
    with pytest.raises(OptionError, match="requires TLS"):
        check_identity(ClientOptions(service_url="pulsar://localhost", tls=tls))


TOKEN = Credentials("token", "abc")
OAUTH2 = '{"issuerUrl": "%s://%s/", "privateKey": "file:///key"}'


@pytest.mark.parametrize(
    "host", ["issuer", "192.0.2.1", "localhost.example.com", "127.0.0.1.nip.io", "[::2]:80"]
)
def test_a_login_does_not_go_out_in_clear_beside_tls(host):
    safe, plain = "pulsar+ssl://broker", "pulsar://broker"
    issuer = Credentials("oauth2", OAUTH2 % ("http", host))
    for service, login, admin in ((safe, TOKEN, f"http://{host}"), (safe, issuer, None)):
        with pytest.raises(OptionError, match="sent unencrypted"):
            check_identity(ClientOptions(service_url=service, credentials=login), admin)
    # Who has no TLS at all has asked for it, and where no secret is sent there is none to be read.
    check_identity(ClientOptions(service_url=plain, credentials=TOKEN), f"http://{host}")
    check_identity(ClientOptions(service_url=plain, credentials=issuer), f"http://{host}")
    check_identity(ClientOptions(service_url=safe), f"http://{host}")
    check_identity(ClientOptions(service_url=safe, credentials=TOKEN), f"https://{host}")
    safe_issuer = Credentials("oauth2", OAUTH2 % ("https", host))
    check_identity(ClientOptions(service_url=safe, credentials=safe_issuer), None)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:80", "127.1.2.3", "[::1]:8080"])
def test_a_login_may_go_to_this_machine_in_clear(host):
    issuer = Credentials("oauth2", OAUTH2 % ("http", host))
    for login in (TOKEN, issuer):
        check_identity(ClientOptions(service_url="pulsar+ssl://broker", credentials=login), f"http://{host}")


@pytest.mark.parametrize(
    "tls",
    [
        TlsOptions(trust_certs="/is/not/there.pem"),
        TlsOptions(allow_insecure=True),
        TlsOptions(verify_hostname=False),
        TlsOptions(protocols=("TLSv1.3",)),
    ],
)
def test_options_of_tls_that_nothing_uses_are_refused(tls):
    with pytest.raises(OptionError, match=r"have no effect.*pulsar\+ssl://"):
        check_identity(ClientOptions(service_url="pulsar://broker", tls=tls), "http://broker:8080")
    # The admin service and an OAuth2 issuer use them as well.
    check_identity(ClientOptions(service_url="pulsar://broker", tls=tls), "HTTPS://broker:8443")
    issuer = Credentials("oauth2", OAUTH2 % ("https", "issuer"))
    check_identity(ClientOptions(service_url="pulsar://broker", tls=tls, credentials=issuer))
    check_identity(ClientOptions(service_url="pulsar+ssl://broker", tls=tls))


def test_a_proxy_needs_tls_to_the_brokers():
    tls = TlsOptions(proxy=Address("proxy", 443, tls=True))
    with pytest.raises(OptionError, match="proxyServiceUrl requires TLS"):
        check_identity(ClientOptions(service_url="pulsar://broker", tls=tls), "https://broker:8443")


@pytest.mark.parametrize(
    ("url", "tls", "why"),
    [
        ("pulsar://broker", TlsOptions(), "service.url has no TLS"),
        ("pulsar://localhost,broker", TlsOptions(), "service.url has no TLS"),
        ("pulsar+ssl://broker", TlsOptions(allow_insecure=True), "tlsAllowInsecureConnection"),
        ("pulsar+ssl://broker", TlsOptions(verify_hostname=False), "tlsHostnameVerificationEnable"),
        ("pulsar+ssl://broker", TlsOptions(), None),
        ("pulsar://localhost:6650,127.0.0.1,[::1]:6650", TlsOptions(), None),
    ],
)
def test_who_could_read_the_secret_of_a_login(url, tls, why):
    found = login_risk(ClientOptions(service_url=url, tls=tls, credentials=TOKEN))
    assert (found is None) == (why is None)
    assert why is None or why in found
    assert "abc" not in str(found)
    # Without a secret there is nothing to read.
    assert login_risk(ClientOptions(service_url=url, tls=tls)) is None
