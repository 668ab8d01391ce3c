"""Lookups: redirects, proxies, failures; and what service.url may say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    NotReadyError,
    OptionError,
    ProtocolError,
    TopicNotFoundError,
)
from pulsar_spark.protocol.lookup import MAX_REDIRECTS, Address, Lookup, parse_service_url
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each

TOPIC = "persistent://public/default/t"
SERVICE = Address("service", 6650)

Response = pb.CommandLookupTopicResponse


def response(kind, url=None, **fields):
    made = Response(request_id=1, response=kind, **fields)
    if url is not None:
        made.brokerServiceUrl = url
    return made


def new_lookup():
    return Lookup(TOPIC, SERVICE)


def test_the_service_is_asked_first():
    lookup = new_lookup()
    assert (lookup.topic, lookup.ask, lookup.authoritative) == (TOPIC, SERVICE, False)


@pytest.mark.parametrize("authoritative", [True, False])
def test_connect(authoritative):
    answer = response(Response.Connect, "pulsar://broker-2:6651", authoritative=authoritative)
    assert new_lookup().answered(answer) == Address("broker-2", 6651)


@pytest.mark.parametrize("authoritative", [True, False])
def test_redirect_passes_authoritative_on(authoritative):
    lookup = new_lookup()
    redirect = response(Response.Redirect, "pulsar://broker-2:6651", authoritative=authoritative)
    assert lookup.answered(redirect) is None
    assert (lookup.ask, lookup.authoritative) == (Address("broker-2", 6651), authoritative)
    assert lookup.answered(response(Response.Connect, "pulsar://broker-3:6650")) == Address("broker-3", 6650)


def test_redirects_without_end_are_followed_slowly():
    """Each may name a host to connect with."""
    lookup = Lookup(TOPIC, SERVICE, 10**6)
    now, asked = 0.0, []
    while now < 60.0:
        asked.append(now)
        lookup.answered(response(Response.Redirect, f"pulsar://h{len(asked)}:1"))
        now += lookup.pause(0.0)
    assert asked[:3] == [0.0] * 3, "a lookup has one redirect, or two"
    assert len(asked) < 70
    assert lookup.pause(1.0) == 2.0
    assert str(len(asked)) in str(lookup.unfinished())


@pytest.mark.parametrize("limit", [1, 3, None])
def test_the_limit_of_redirects(limit):
    lookup = new_lookup() if limit is None else Lookup(TOPIC, SERVICE, limit)
    limit = limit or 20
    redirect = response(Response.Redirect, "pulsar://broker-2:6651")
    for _ in range(limit):
        assert lookup.answered(redirect) is None
    with pytest.raises(ProtocolError, match=f"more than {limit} times") as caught:
        lookup.answered(redirect)
    assert caught.value.topic == TOPIC


def test_the_last_redirect_may_lead_home():
    lookup = new_lookup()
    for _ in range(MAX_REDIRECTS):
        lookup.answered(response(Response.Redirect, "pulsar://broker-2:6651"))
    assert lookup.answered(response(Response.Connect, "pulsar://broker-3:1")) == Address("broker-3", 1)


def test_a_proxied_broker_is_reached_through_the_service():
    for port, told in (("", 6650), (":6651", 6651)):
        answer = response(Response.Connect, f"pulsar://broker-2{port}", proxy_through_service_url=True)
        assert new_lookup().answered(answer) == Address("service", 6650, proxy_to=f"broker-2:{told}")


def test_a_broker_that_is_the_service_needs_no_proxy():
    # A standalone broker says proxy_through_service_url of itself.
    answer = response(Response.Connect, "pulsar://service:6650", proxy_through_service_url=True)
    assert new_lookup().answered(answer) == SERVICE
    answer = tls_response(Response.Connect, "pulsar://service:6650", proxy_through_service_url=True)
    assert tls_lookup().answered(answer) == replace(SERVICE, tls=True)


def test_after_a_redirect_the_proxy_is_still_the_service():
    lookup = new_lookup()
    lookup.answered(response(Response.Redirect, "pulsar://broker-2:6651"))
    answer = response(Response.Connect, "pulsar://broker-3:6652", proxy_through_service_url=True)
    assert lookup.answered(answer) == Address("service", 6650, proxy_to="broker-3:6652")


def test_a_proxied_redirect():
    lookup = new_lookup()
    answer = response(Response.Redirect, "pulsar://broker-2:6651", proxy_through_service_url=True)
    assert lookup.answered(answer) is None
    assert lookup.ask == Address("service", 6650, proxy_to="broker-2:6651")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pb.TopicNotFound, TopicNotFoundError),
        (pb.ServiceNotReady, NotReadyError),
        (pb.AuthorizationError, AuthError),
        (pb.UnknownError, BrokerError),
    ],
)
def test_failed(code, kind):
    with pytest.raises(BrokerError, match="Namespace not found") as caught:
        new_lookup().answered(response(Response.Failed, error=code, message="Namespace not found"))
    assert type(caught.value) is kind
    assert caught.value.topic == TOPIC


def tls_lookup():
    return Lookup(TOPIC, replace(SERVICE, tls=True))


def tls_response(kind, url, **fields):
    return response(kind, "pulsar://plain:1", brokerServiceUrlTls=url, **fields)


def test_with_tls_the_tls_address_counts():
    answer = tls_response(Response.Connect, "pulsar+ssl://broker-2")
    assert tls_lookup().answered(answer) == Address("broker-2", 6651, tls=True)


@pytest.mark.parametrize("url", ["", "pulsar://broker-2:6650", "http://broker:8080"])
def test_tls_is_never_given_up(url):
    with pytest.raises(ProtocolError, match="no usable TLS address"):
        tls_lookup().answered(tls_response(Response.Connect, url))


@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
@pytest.mark.parametrize("tls", [True, False])
def test_a_proxy_speaks_to_brokers_as_it_likes(scheme, tls):
    service = replace(SERVICE, tls=tls)
    url = f"{scheme}://broker-2:6652"
    answer = response(Response.Connect, url, brokerServiceUrlTls=url, proxy_through_service_url=True)
    assert Lookup(TOPIC, service).answered(answer) == replace(service, proxy_to="broker-2:6652")


def test_without_tls_a_tls_address_is_none():
    with pytest.raises(ProtocolError, match="address"):
        new_lookup().answered(response(Response.Connect, "pulsar+ssl://broker:6651"))


@for_each("url", [None, "", "pulsar://", "http://broker:8080", "pulsar://broker:0x1"])
@for_each("kind", [Response.Connect, Response.Redirect])
@for_each("proxied", [True, False])
def test_an_answer_without_a_usable_address(kind, url, proxied):
    lookup = new_lookup()
    with pytest.raises(ProtocolError, match="address") as caught:
        lookup.answered(response(kind, url, proxy_through_service_url=proxied))
    assert caught.value.topic == TOPIC
    assert lookup.ask == SERVICE


# ---- service.url


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://h", [("h", 6650)]),
        ("pulsar://h/", [("h", 6650)]),
        ("pulsar://h:1", [("h", 1)]),
        ("pulsar://h:65535/", [("h", 65535)]),
        (" pulsar://h:6650 \n", [("h", 6650)]),
        ("pulsar://h1:6650,h2,h3:1", [("h1", 6650), ("h2", 6650), ("h3", 1)]),
        ("pulsar://h1:1, h2:2/", [("h1", 1), ("h2", 2)]),
        ("pulsar://10.0.0.1:6650", [("10.0.0.1", 6650)]),
        ("pulsar://[::1]:6650", [("::1", 6650)]),
        ("pulsar://[::1]", [("::1", 6650)]),
        ("pulsar://[fe80::1]:1,[fe80::2],h", [("fe80::1", 1), ("fe80::2", 6650), ("h", 6650)]),
        ("pulsar://my-broker_1.example.com:6650", [("my-broker_1.example.com", 6650)]),
    ],
)
def test_service_urls(url, addresses):
    assert parse_service_url(url) == tuple(Address(host, port) for host, port in addresses)


def test_service_urls_with_tls():
    addresses = (Address("h1", 6651, tls=True), Address("h2", 1, tls=True))
    assert parse_service_url("pulsar+ssl://h1,h2:1/") == addresses


@pytest.mark.parametrize(
    "url",
    [
        *("", "pulsar", "pulsar:", "pulsar:/h", "pulsar:h:6650", "//h:6650", "h:6650", "localhost"),
        *("http://h:8080", "pulsar+tls://h:6651", "Pulsar//h", "xpulsar://h", "kafka://h:9092"),
    ],
)
def test_other_schemes(url):
    with pytest.raises(OptionError, match=r"pulsar://"):
        parse_service_url(url)


@for_each(
    "host",
    [
        *("", "/", ",", "h,", ",h", "h,,i", ":6650", "h:-1", "h:65536", "h:99999", "h:x", "h:1:2"),
        *("h:6650x", "h:+1", "[::1", "::1", "::1:6650", "[::1]x:6650", "[]:6650", "h/path"),
        *("h:6650/path", "h1/,h2", "h:6650?tls=true", "h:6650#x", "h:0"),
    ],
)
def test_bad_hosts_and_ports(host):
    with pytest.raises(OptionError) as caught:
        parse_service_url(f"pulsar://{host}")
    assert "service.url" in str(caught.value)


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        *(f"pulsar://user:{SECRET}@h:6650", f"pulsar://{SECRET}@h:6650"),
        *(f"pulsar://h1:6650,user:{SECRET}@h2:6650", f"pulsar://h1:x,user:{SECRET}@h2:6650"),
        *(f"pulsar://user:{SECRET}@h1,h2:bad", f"pulsar+ssl://user:{SECRET}@h:6650"),
        *(f"http://user:{SECRET}@h:8080", f"user:{SECRET}@h:6650"),
    ],
)
def test_credentials_in_the_url_are_refused_and_not_repeated(url):
    with pytest.raises(OptionError) as caught:
        parse_service_url(url)
    error: BaseException | None = caught.value
    assert "service.url" in str(error)
    while error is not None:
        assert SECRET not in f"{error}{error.args}{vars(error)}"
        error = error.__cause__ or error.__context__


@given(st.text(max_size=30) | st.text("pulsar:/,[]@?#%h1.0 \t\n", max_size=30))
def test_any_text_is_an_address_or_an_option_error(text):
    for url in (text, f"pulsar://{text}"):
        try:
            addresses = parse_service_url(url)
        except OptionError:
            continue
        assert addresses
        assert all(address.host and 0 < address.port < 65536 for address in addresses)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("h", 6650), "h:6650"),
        (Address("h", 1, proxy_to="b:2"), "h:1"),
        (Address("::1", 1), "[::1]:1"),
    ],
)
def test_the_text_of_an_address(address, text):
    assert str(address) == text
