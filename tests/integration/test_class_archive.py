"""The file that keeps a broker's classes: Java takes no archive of other jars, or of another Java."""

import os

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
