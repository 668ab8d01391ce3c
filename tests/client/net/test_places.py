"""Secrets by their places."""

from pathlib import Path

import pytest

from pulsar_spark.client.net.places import path_of, text_at
from pulsar_spark.errors import AuthError, TlsError


@pytest.mark.parametrize("url", ["file:///a%20b/c", "file:/a%20b/c", "file:///a b/c"])
def test_paths(url):
    assert path_of(url) == Path("/a b/c")


def test_a_path_is_itself_and_may_be_relative():
    for text, path in {"file:a/b": "a/b", "a%20b": "a%20b", "/a": "/a", "./a": "a"}.items():
        assert path_of(text) == Path(path)


def test_a_text_that_names_no_place_is_itself():
    for text in ("abc", "", "file", "environment", "http://x", "File:///x"):
        assert text_at(text, "o", TlsError) == text


def test_files_and_variables_are_read_as_they_are_now(tmp_path, monkeypatch):
    file = tmp_path / "password"
    for text in ("first\n", "second"):
        file.write_text(text)
        monkeypatch.setenv("PASSWORD_OF_TEST", text)
        assert text_at(f"file://{file}", "o", TlsError) == text
        assert text_at("env:PASSWORD_OF_TEST", "o", TlsError) == text


@pytest.mark.parametrize("kind", [AuthError, TlsError])
def test_places_where_nothing_is(tmp_path, monkeypatch, kind):
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    (tmp_path / "bytes").write_bytes(b"\xff")
    for place, match in (
        (f"file://{tmp_path}/none", "the file that o names cannot be read: No such file"),
        (f"file://{tmp_path}/bytes", "the file that o names cannot be read: it is not text"),
        ("env:NO_SUCH_VARIABLE", "the environment variable that o names is not set"),
    ):
        with pytest.raises(kind, match=match) as caught:
            text_at(place, "o", kind)
        assert caught.value.advice
        assert str(tmp_path) not in str(caught.value)
        assert "NO_SUCH" not in str(caught.value)
