"""The cache of jars: which sums are computed, and whose folder is refused."""

import hashlib
import os

import pytest

from pulsar_spark_broker import EmbeddedBrokerError, jars


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with one jar and its sum, for a process that has just begun."""
    monkeypatch.setattr(jars, "_trusted", set())
    monkeypatch.setattr(jars, "_fetch", lambda *given: None)
    folder = tmp_path / "cache"
    (folder / "m2").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    (folder / "m2" / "a.jar").write_bytes(b"code")
    (tmp_path / "jars.sha256").write_text(f"{hashlib.sha256(b'code').hexdigest()}  a.jar\n")
    return folder


def checked(cache):
    return jars.jars_of(cache.parent / "jars.sha256", cache)


def replace_jar(cache):
    """Put other code in the place of the jar; size and time stay, so its stamp does."""
    jar = cache / "m2" / "a.jar"
    times = jar.stat()
    jar.write_bytes(b"evil")
    os.utime(jar, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_in_ci_no_stamp_of_another_run_is_believed(cache, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    assert checked(cache) == [cache / "m2" / "a.jar"]
    replace_jar(cache)
    assert checked(cache) == [cache / "m2" / "a.jar"]
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(jars, "_trusted", set())  # another process
    with pytest.raises(EmbeddedBrokerError, match="differ from jars"):
        checked(cache)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_cache_that_others_may_write_is_refused(cache, mode):
    cache.chmod(mode)
    with pytest.raises(EmbeddedBrokerError, match=r"others can write.*chmod go-w"):
        checked(cache)


def test_a_cache_of_another_user_is_refused(cache, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(EmbeddedBrokerError, match="others can write"):
        checked(cache)


def test_a_new_cache_is_its_owners_alone(cache):
    new = cache.parent / "new" / "cache"
    with pytest.raises(EmbeddedBrokerError, match="differ"):  # nothing is fetched here
        jars.jars_of(cache.parent / "jars.sha256", new)
    assert new.stat().st_mode & 0o777 == 0o700
