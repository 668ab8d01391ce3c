"""The server for pages: real sockets on the loopback."""

import contextlib
import http.client
import logging
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from pulsar_spark.client import HttpAnswer, PageServer
from pulsar_spark.client.net import page_server


def answer(path):
    if path == "/broken":
        raise RuntimeError("broken")
    return HttpAnswer("text/plain", path.encode(), {"X-Own": "yes"}) if path in ("/", "/a") else None


@contextmanager
def served(host="127.0.0.1", *allowed_hosts):
    server = PageServer(answer, host, 0, allowed_hosts)
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


@pytest.mark.parametrize(
    "host", ["driver.example:4050", "DRIVER.example.", "10.0.0.1:4050", "[2001:db8::1]", "localhost", "ours"]
)
def test_elsewhere_addresses_and_known_names_are_answered(host, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "ours")
    with served("0.0.0.0", "Driver.example") as address:
        assert ask(address.replace("0.0.0.0", "127.0.0.1"), Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "[", "10.0.0.1.evil.example"])
def test_elsewhere_a_name_that_nobody_listed_is_refused(host):
    """A web page could make a browser read it by a name of the page's own."""
    with served("0.0.0.0", "driver.example") as address:
        status, body, _ = ask(address.replace("0.0.0.0", "127.0.0.1"), Host=host)
        assert status == 403
        assert b"allowed_hosts" in body


def test_a_listed_name_is_answered_on_the_loopback():
    with served("127.0.0.1", "proxy.example") as address:
        assert ask(address, Host="proxy.example")[0] == 200
        assert ask(address, Host="10.0.0.1")[0] == 403


def connected(address):
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


@contextmanager
def dripping(address, count):
    """Clients that send a byte now and then, and never a whole request."""
    ended = threading.Event()
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(address)) for _ in range(count)]

        def drip():
            while not ended.wait(0.05):
                for client in clients:
                    with contextlib.suppress(OSError):  # it was ended
                        client.sendall(b"G")

        dripper = threading.Thread(target=drip)
        dripper.start()
        try:
            yield clients
        finally:
            ended.set()
            dripper.join()


def is_ended(client):
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_slow_clients_hold_up_nobody():
    before = threading.active_count()
    with served() as address, dripping(address, 10), ExitStack() as stack:
        idle = [stack.enter_context(connected(address)) for _ in range(600)]
        assert ask(address)[0] == 200
        assert threading.active_count() <= before + 2 + 2 * page_server._MAX_CLIENTS
        assert is_ended(idle[0]), "the longest connected makes room"


def test_clients_that_read_nothing_hold_few_answers(monkeypatch):
    """64 of them took 1.7 GiB of a query's 100,000 partitions."""
    monkeypatch.setattr(page_server, "_MAX_SENT", 45 << 20)
    making, made = [], []

    def large(path):
        making.append(path)
        assert len(making) == 1, "answers are made one after the other"
        body = bytes(20 << 20)
        making.clear()
        made.append(path)
        return HttpAnswer("text/plain", body)

    server = PageServer(large, "127.0.0.1", 0)
    address = server.url.removeprefix("http://").rstrip("/")
    with ExitStack() as stack:
        stack.callback(server.close)
        clients = []
        for count in range(1, 9):
            clients.append(stack.enter_context(connected(address)))
            clients[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda count=count: len(made) == count)
            wait_until(lambda count=count: len(server._server._sent) == min(count, 2))
            assert sum(server._server._sent.values()) <= 45 << 20
        wait_until(lambda: len(server._server._threads) == 2)
        assert len(ask(address)[1]) == 20 << 20


def test_a_client_whose_time_is_over_gets_no_answer_made(monkeypatch):
    monkeypatch.setattr(page_server, "_TIMEOUT", 0.2)
    asked, may_end = [], threading.Event()

    def slow(path):
        asked.append(path)
        may_end.wait(10)
        return HttpAnswer("text/plain", b"")

    server = PageServer(slow, "127.0.0.1", 0)
    address = server.url.removeprefix("http://").rstrip("/")
    with ExitStack() as stack:
        stack.callback(server.close)
        for _ in range(3):
            stack.enter_context(connected(address)).sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: asked and not server._server._deadlines)
        may_end.set()
        wait_until(lambda: not server._server._threads)
    assert asked == ["/"]


def test_close_ends_slow_clients():
    server = PageServer(answer, "127.0.0.1", 0)
    address = server.url.removeprefix("http://").rstrip("/")
    with dripping(address, 3) as clients:
        assert ask(address)[0] == 200
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 2.0
        assert all(map(is_ended, clients))


def test_close_does_not_wait_for_an_answer_that_takes_long():
    asked, goes_on = threading.Event(), threading.Event()

    def slow(path):
        asked.set()
        goes_on.wait()

    server = PageServer(slow, "127.0.0.1", 0)
    with connected(server.url.removeprefix("http://").rstrip("/")) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        asked.wait()
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 2.0
        goes_on.set()


def test_a_program_ends_while_a_client_is_connected():
    program = """
import socket
from pulsar_spark.client import PageServer
server = PageServer(lambda path: None, "127.0.0.1", 0)
client = socket.create_connection(("127.0.0.1", int(server.url.split(":")[2].rstrip("/"))))
client.sendall(b"GET")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("more", [b"", b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"])
def test_a_request_has_one_deadline(more, monkeypatch):
    """For reading it, and for sending an answer to a client that does not take it."""
    monkeypatch.setattr(page_server, "_TIMEOUT", 0.3)
    server = PageServer(lambda path: HttpAnswer("text/plain", bytes(50 << 20)), "127.0.0.1", 0)
    try:
        with dripping(server.url.removeprefix("http://").rstrip("/"), 1) as (client,):
            client.sendall(more)
            wait_until(lambda: not server._server._threads)
    finally:
        server.close()


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


def test_a_request_is_bounded():
    with served() as address, connected(address) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 20_000)
        assert is_ended(client)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://[x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"\r\n\r\n",
        b"\n\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /\xff\x00 HTTP/1.1\r\n\xff: \xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET " + b"/" * 60_000 + b" HTTP/1.1\r\n\r\n",
        b"X" * 100 + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost",
    ],
)
def test_a_client_writes_no_log(request_, caplog):
    caplog.set_level(logging.INFO)
    with served() as address:
        with connected(address) as client:
            client.sendall(request_)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(1 << 16):
                    pass
        assert ask(address)[0] == 200
    assert not caplog.records


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
    for thread in set(threading.enumerate()) - before:  # one that has just answered
        thread.join(10)
        assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        ask(address)


def test_a_port_that_is_taken_is_an_error():
    with served() as address, pytest.raises(OSError, match="in use"):
        PageServer(answer, "127.0.0.1", int(address.partition(":")[2]))
