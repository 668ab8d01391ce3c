"""The server for pages: real sockets on the loopback."""

import http.client
import logging
import socket
import threading
from contextlib import contextmanager

import pytest

from pulsar_spark.client import HttpAnswer, PageServer


def answer(path):
    if path == "/broken":
        raise RuntimeError("broken")
    return HttpAnswer("text/plain", path.encode(), {"X-Own": "yes"}) if path in ("/", "/a") else None


@contextmanager
def served(host="127.0.0.1"):
    server = PageServer(answer, host, 0)
    try:
        yield server.url.removeprefix("http://").rstrip("/")
    finally:
        server.close()


def ask(address, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        found = connection.getresponse()
        return found.status, found.read(), dict(found.getheaders())
    finally:
        connection.close()


def test_paths_have_answers_without_their_query():
    with served() as address:
        status, body, headers = ask(address, "/a?b=c")
        assert (status, body) == (200, b"/a")
        assert headers["X-Own"] == "yes"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"].strip() == "pulsar_spark"
        assert ask(address, "/none")[0] == 404
        assert ask(address, "/a", "HEAD")[:2] == (200, b"")
        assert ask(address, "/a", "POST")[0] == 501


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:80"])
def test_the_loopback_is_answered_by_its_names(host):
    with served() as address:
        assert ask(address, Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "10.0.0.1", "", "[", "127.0.0.1.evil.example"]
)
def test_a_name_that_leads_to_the_loopback_is_refused(host):
    with served() as address:
        assert ask(address, Host=host)[0] == 403


def test_elsewhere_any_name_is_good():
    with served("0.0.0.0") as address:
        assert ask(address.replace("0.0.0.0", "127.0.0.1"), Host="driver.example")[0] == 200


def test_a_slow_client_holds_up_nobody():
    with served() as address:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"GET / HT")
            assert ask(address)[0] == 200


def test_an_answer_that_fails_is_logged_and_disturbs_nobody(caplog):
    caplog.set_level(logging.WARNING)
    with served() as address:
        with pytest.raises((http.client.BadStatusLine, ConnectionError)):
            ask(address, "/broken")
        assert ask(address)[0] == 200
    assert "a request from ('127.0.0.1', " in caplog.text
    assert "RuntimeError: broken" in caplog.text


def test_no_thread_and_no_socket_are_left():
    before = set(threading.enumerate())
    with served() as address:
        ask(address)
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        ask(address)


def test_a_port_that_is_taken_is_an_error():
    with served() as address, pytest.raises(OSError, match="in use"):
        PageServer(answer, "127.0.0.1", int(address.partition(":")[2]))
