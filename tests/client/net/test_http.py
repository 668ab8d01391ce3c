"""HTTP requests end in time and within a size, whatever the server sends."""

import json
import socket
import threading
import tracemalloc
import urllib.request
from contextlib import contextmanager

import pytest

from pulsar_spark.client.net.http import MAX_ANSWER, HttpError, fetch, parse_json

LIMIT = 0.5


@contextmanager
def server(talk):
    """Let ``talk(socket, stop)`` have each connection; gives the URL."""
    stop = threading.Event()
    threads = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=run, args=(connection,)))
            threads[-1].start()

    def run(connection):
        with connection:
            connection.recv(1 << 16)
            try:
                talk(connection, stop)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=serve)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in [accepting, *threads]:
                thread.join()


def sends(*parts):
    def talk(connection, stop):
        for part in parts:
            connection.sendall(part)

    return talk


def drips(head, byte):
    """Send ``head``, then a byte each 50 ms: the timeout of a socket never passes."""

    def talk(connection, stop):
        connection.sendall(head)
        while not stop.wait(0.05):
            connection.sendall(byte)

    return talk


def follow(request, url):
    return urllib.request.Request(url)


def get(url, timeout=LIMIT, redirect=follow, **more):
    return fetch(urllib.request.Request(url), redirect=redirect, timeout=timeout, **more)


def test_an_answer_comes_with_its_status():
    with server(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")) as url:
        assert get(url, timeout=30) == (200, b"abc")
    with server(sends(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno")) as url:
        assert get(url, timeout=30) == (404, b"no")


@pytest.mark.parametrize(
    "talk",
    [
        drips(b"", b"H"),
        drips(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        drips(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a"),
        drips(b"HTTP/1.1 500 Bad\r\nContent-Length: 1000000\r\n\r\n", b"a"),
        drips(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        lambda connection, stop: stop.wait(60),
    ],
    ids=["status", "header", "body", "refusal", "chunks", "silence"],
)
def test_the_time_limit_is_that_of_the_whole_request(talk):
    with server(talk) as url, pytest.raises(HttpError, match=r"within 0\.5 s|timed out"):
        get(url)


def test_redirects_have_no_time_of_their_own():
    def talk(connection, stop):
        stop.wait(0.1)
        connection.sendall(b"HTTP/1.1 302 Go\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n")

    with server(talk) as url:
        with pytest.raises(HttpError, match="more than 10 redirects"):
            get(url, timeout=30)
        with pytest.raises(HttpError, match=r"within 0\.3 s|timed out"):
            get(url, timeout=0.3)


def test_an_answer_without_end_is_refused():
    def talk(connection, stop):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(bytes(1 << 16))

    with server(talk) as url, pytest.raises(HttpError, match="more than 100000 bytes"):
        get(url, timeout=30, max_size=100_000)


@pytest.mark.parametrize("said", [b"", b"\xff\xff\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_http_is_refused(said):
    with server(sends(said)) as url, pytest.raises(HttpError):
        get(url, timeout=30)


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    with pytest.raises(HttpError) as caught:
        get(url)
    assert isinstance(caught.value.cause, ConnectionRefusedError)


def test_chunks_of_a_byte_or_two_take_no_more_memory_than_the_body():
    size = 1 << 18
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"2\r\nab\r\n" * (size // 2)
    with server(sends(answer + b"0\r\n\r\n")) as url:
        tracemalloc.start()
        try:
            assert get(url, timeout=60) == (200, b"ab" * (size // 2))
            assert tracemalloc.get_traced_memory()[1] < 6 * size
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("item", [b"[]", b'{"":0}', b"257", b'["ab",[1.5,{}]]'])
def test_json_takes_memory_within_a_bound(item):
    """Python needs up to 30 times the bytes of the text."""
    hostile = b"[" + (item + b",") * (MAX_ANSWER // (len(item) + 1)) + b"0]"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too many values"):
            parse_json(hostile)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        objects = 1 + item.count(b"[") + item.count(b"{")
        values = 1 + objects + item.count(b",")
        allowed = min(200_000 // objects, 1_000_000 // values) - 1
        parse_json(b"[" + (item + b",") * allowed + b"0]")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_namespace_of_many_topics_can_be_listed():
    names = [f"persistent://tenant/namespace/a-topic-with-a-long-name-{number}" for number in range(200_000)]
    text = json.dumps(names).encode()
    assert len(text) <= MAX_ANSWER
    assert parse_json(text) == names


def test_json_that_is_nested_too_deep_is_no_json():
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    for bad in (b"[" * 1_000_000, b"{", b"\xff"):
        with pytest.raises(ValueError):  # noqa: PT011 - json's own text
            parse_json(bad)
