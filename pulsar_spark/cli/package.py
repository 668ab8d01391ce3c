"""``pulsar_spark package``: write the files for ``spark-submit --packages`` and ``--py-files``.

    FOLDER/pulsar-spark/pulsar-spark/VERSION/pulsar-spark-VERSION.jar    the packages and their libraries
                                            /pulsar-spark-VERSION.pom    each with its .sha1

A jar is a zip archive; Spark puts it on the Python path of driver and executors. It contains the Python part
of the installed protobuf runtime, which needs no compiled code, and is used only if a cluster has no protobuf
(:mod:`pulsar_spark.libraries`). numpy and pyarrow are compiled; a cluster has them because Spark needs them.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from pulsar_spark.errors import LibraryError
from pulsar_spark.version import VERSION

GROUP = ARTIFACT = "pulsar-spark"

_PACKAGES = ("pulsar_spark", "pyspark_pulsar", "pyspark_pulsar_spark")
_ROOT = Path(__file__).resolve().parents[2]
_SUFFIXES = (".py", ".html", ".css", ".js")
_CARRIED = "pulsar_spark/carried/"
_TIME = (1980, 1, 1, 0, 0, 0)  # time of all entries, fixed so that equal files make equal archives

_MANIFEST = "Manifest-Version: 1.0\r\nImplementation-Title: pulsar-spark\r\n\r\n"

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <description>{summary}</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
    <license>
      <name>BSD-3-Clause</name>
      <url>https://opensource.org/license/bsd-3-clause</url>
      <comments>protobuf, in pulsar_spark/carried</comments>
    </license>
  </licenses>
</project>
"""

_DESCRIPTION = """
Build a jar that holds this package and what it needs, with a POM, in a folder laid out as a Maven repository.
spark-submit takes it from there to the driver and to all executors; nothing has to be installed on them but
pyspark with its SQL extra.
"""


def add_command(commands: Any) -> None:
    """Adds ``package`` to the subparsers of a command line."""
    parser = commands.add_parser("package", help="build a jar for spark-submit", description=_DESCRIPTION)
    parser.add_argument(
        "folder", type=Path, help="folder of the Maven repository; it is created if it does not exist"
    )
    parser.set_defaults(run=lambda parsed: _run(parsed.folder))


def build(repository: Path) -> Path:
    """Writes the jar and its POM into ``repository``; returns the jar's path.

    The jar is reproducible: equal installed files give equal bytes.
    """
    about = metadata.metadata("pulsar-spark")
    folder = repository / GROUP / ARTIFACT / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"{ARTIFACT}-{VERSION}.jar"
    _write_archive(jar, dict(_files()))
    pom = _POM.format(group=GROUP, artifact=ARTIFACT, version=VERSION, summary=about["Summary"])
    jar.with_suffix(".pom").write_text(pom)
    for file in (jar, jar.with_suffix(".pom")):
        digest = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
        file.with_name(f"{file.name}.sha1").write_text(digest)
    return jar


def coordinates() -> str:
    """Returns the Maven coordinates for ``--packages``."""
    return f"{GROUP}:{ARTIFACT}:{VERSION}"


def _run(folder: Path) -> None:
    jar = build(folder)
    sys.stdout.write(
        f"{jar}\n\n"
        f"spark-submit --packages {coordinates()} --repositories {folder.resolve().as_uri()} APP.py\n"
        f"spark-submit --py-files {jar} APP.py\n"
    )


def _files() -> Iterator[tuple[str, bytes]]:
    yield "META-INF/MANIFEST.MF", _MANIFEST.encode()
    for package in _PACKAGES:
        for file in sorted((_ROOT / package).rglob("*.*")):
            if file.suffix in _SUFFIXES:
                yield file.relative_to(_ROOT).as_posix(), file.read_bytes()
    for distribution in ("pulsar-spark", "protobuf"):
        for part in metadata.files(distribution) or []:
            if part.name.startswith("LICENSE"):
                yield f"META-INF/licenses/{distribution}/{part.name}", part.read_binary()
    carried = [part for part in metadata.files("protobuf") or [] if part.parts[:2] == ("google", "protobuf")]
    if not carried:
        raise LibraryError(
            "the files of the installed protobuf cannot be listed", advice="Install protobuf with pip"
        )
    for part in carried:
        if part.suffix == ".py":
            yield _CARRIED + part.as_posix(), part.read_binary()


def _write_archive(path: Path, files: dict[str, bytes]) -> None:
    # Folders are entries too, because before Python 3.13 a package without __init__.py is found by its entry.
    folders = {f"{parent.as_posix()}/" for name in files for parent in Path(name).parents if parent.name}
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted({*folders, *files}):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files.get(name, b""))
