"""The file that keeps a broker's classes: Java takes no archive of other jars, or of another Java."""

import os
import signal
from pathlib import Path

import pytest

from pulsar_spark_broker import class_archive as made
from pulsar_spark_broker.jars import class_archive


def test_other_jars_and_another_java_have_another_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("PULSAR_SPARK_CACHE", str(tmp_path / "cache"))
    java, jar, other = (tmp_path / name for name in ("java", "a.jar", "b.jar"))
    for file in (java, jar, other):
        file.write_bytes(b"content")
    first = class_archive(str(java), [jar])
    assert first.parent == tmp_path / "cache"
    assert class_archive(str(java), [jar]) == first
    found = {first, class_archive(str(other), [jar]), class_archive(str(java), [jar, other])}
    for file in (java, jar):
        os.utime(file, (1, 1))
        found.add(class_archive(str(java), [jar]))
    assert len(found) == 5


@pytest.mark.parametrize(("number", "is_kept"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_only_a_file_that_java_has_written_to_its_end_is_kept(tmp_path, monkeypatch, number, is_kept):
    class Broker:
        def __init__(self, jvm):
            self._file = Path(jvm.options[0].partition("=")[2])

        def __enter__(self):
            return self

        def __exit__(self, *given):
            pass

        def stop(self, timeout):
            self._file.write_bytes(b"classes")

        def wait(self):
            return 128 + number

    old, new = tmp_path / "classes-old.jsa", tmp_path / "classes-new.jsa"
    old.touch()
    for name, value in {
        "StandaloneBroker": Broker,
        "broker_jars": list,
        "java_for": lambda version: "java",
        "class_archive": lambda java, jars: new,
    }.items():
        monkeypatch.setattr(made, name, value)
    made.make_class_archive()
    assert list(tmp_path.iterdir()) == [new if is_kept else old]
