"""Pulsar's jars: fetched by Maven into a cache, checked against the committed SHA-256 sums.

The cache is a Maven repository folder of our own; in it `conf/jars-VERSION.sha256` names the jars of a broker
of that version. A jar that is missing or differs from its sum is deleted and Maven fetches it again, and only
it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from pulsar_spark_broker import EmbeddedBrokerError
from pulsar_spark_broker.java import run_maven

# Names the version of Pulsar that tests run on.
VERSION_VARIABLE = "PULSAR_SPARK_TEST_PULSAR"

_CONF = Path(__file__).resolve().parent / "conf"

# Files of stamps that this process has written or checked.
_trusted: set[Path] = set()

# For each jar: size in bytes, modification time in ns, and the SHA-256 sum found when it had these.
_Stamps = dict[str, tuple[int, int, str]]


def cache_folder() -> Path:
    """Return the folder that keeps the jars between runs."""
    own = os.environ.get("PULSAR_SPARK_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar_spark"


def known_versions() -> list[str]:
    """Return the versions of Pulsar whose jars have sums; that of conf/pom.xml, the default, comes first."""
    default = ElementTree.parse(_CONF / "pom.xml").findtext(".//{*}pulsar.version")
    known = sorted(file.stem.removeprefix("jars-") for file in _CONF.glob("jars-*.sha256"))
    return sorted(known, key=lambda version: version != default)


def pulsar_version() -> str:
    """Return the version of brokers: PULSAR_SPARK_TEST_PULSAR, else the default.

    Raises:
        EmbeddedBrokerError: there are no sums of the jars of that version.
    """
    known = known_versions()
    version = os.environ.get(VERSION_VARIABLE) or known[0]
    if version not in known:
        raise EmbeddedBrokerError(f"{VERSION_VARIABLE}={version}: tests run on Pulsar {' and '.join(known)}")
    return version


def broker_jars(cache: Path | None = None) -> list[Path]:
    """Return the jars of the broker's class path, all present and checked; fetch what is missing or broken.

    Takes some 40 s when all has to be fetched, 20 ms when nothing has. Several processes may call it at once.

    Raises:
        EmbeddedBrokerError: when Maven fails, or what it fetched is not what the sums say.
    """
    return jars_of(_sums_of(pulsar_version()), cache or cache_folder())


def class_archive(java: str, jars: list[Path]) -> Path:
    """Return the file that keeps the classes of these jars as this Java has loaded them; it may not exist.

    With it a broker starts in 60 % of the time (``make_class_archive``).
    """
    files = [Path(java).resolve(), *jars]
    state = repr([(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files])
    return cache_folder() / f"classes-{hashlib.sha256(state.encode()).hexdigest()[:16]}.jsa"


def kept_classes(java: str, jars: list[Path]) -> list[str]:
    """Options of a Java whose class path begins with these jars: it takes their classes as they are kept."""
    archive = class_archive(java, jars)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def jars_of(sum_file: Path, cache: Path) -> list[Path]:
    """The same of another program.

    Args:
        sum_file: names the jars with their sums.
        cache: keeps them between runs.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_own(cache)
    sums = _read_sums(sum_file)
    repository, stamps = cache / "m2", cache / f"{sum_file.parent.name}-{sum_file.stem}.json"
    with _locked(cache / "lock"):
        wrong = _check(repository, sums, stamps)
        if wrong:
            _fetch(repository, wrong, cache)
            wrong = _check(repository, sums, stamps)
        if wrong:
            raise EmbeddedBrokerError(
                f"{len(wrong)} jars in {repository} differ from {sum_file.name}, one is {wrong[0]}"
            )
    return [repository / name for name in sums]


def _sums_of(version: str) -> Path:
    return _CONF / f"jars-{version}.sha256"


def _read_sums(file: Path) -> dict[str, str]:
    """Return path in the repository -> SHA-256 sum, from lines as `sha256sum` writes them."""
    lines = (line.split("  ", 1) for line in file.read_text().splitlines())
    return {name: digest for digest, name in lines}


def _require_own(cache: Path) -> None:
    """Raise EmbeddedBrokerError if others can write to the cache: Java runs the code in it."""
    status = cache.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise EmbeddedBrokerError(
            f"others can write to {cache}, from which Java loads code. Run chmod go-w on it as its owner, or "
            "name another folder in PULSAR_SPARK_CACHE"
        )


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the system frees it when its holder dies."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check(repository: Path, sums: dict[str, str], stamp_file: Path) -> list[str]:
    """Return the names of jars that are missing or differ from their sum.

    Sums are computed only for files whose size or time changed since they were last computed. If CI is set,
    each process computes them once, because the stamps may come from somebody else's run.
    """
    known = _read_stamps(stamp_file) if stamp_file in _trusted or not os.environ.get("CI") else {}
    _trusted.add(stamp_file)
    found = {name: stamp for name in sums if (stamp := _stamp(repository / name, known.get(name)))}
    if found != known:
        scratch = stamp_file.with_suffix(".new")
        scratch.write_text(json.dumps(found))
        scratch.replace(stamp_file)
    return [name for name, digest in sums.items() if name not in found or found[name][2] != digest]


def _read_stamps(file: Path) -> _Stamps:
    try:
        stamps = json.loads(file.read_text())
        return {name: (size, time, digest) for name, (size, time, digest) in stamps.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}  # A first run, or a spoilt file: everything is checked again.


def _stamp(jar: Path, known: tuple[int, int, str] | None) -> tuple[int, int, str] | None:
    """Return what is known of `jar`, computing its sum when it changed; None when it is missing."""
    try:
        status = jar.stat()
    except FileNotFoundError:
        return None
    if known and known[:2] == (status.st_size, status.st_mtime_ns):
        return known
    return status.st_size, status.st_mtime_ns, hashlib.sha256(jar.read_bytes()).hexdigest()


def _fetch(repository: Path, wrong: list[str], cache: Path) -> None:
    """Fetch jars into a Maven repository folder."""
    sys.stderr.write(f"fetching {len(wrong)} jars into {repository}\n")
    for name in wrong:
        (repository / name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom_of(wrong, Path(scratch)))
        run_maven(
            ["--quiet", f"--file={pom}", f"-Dmaven.repo.local={repository}", "dependency:copy"],
            cache,
        )


def _pom_of(names: list[str], folder: Path) -> str:
    """A project that fetches jars, and nothing that they depend on, and copies them into a folder."""
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-spark</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <!-- Newer ones also read each jar's POM, and its parents, of which Maven Central lacks some. -->
    <version>2.10</version>
    <configuration>
      <outputDirectory>{folder}</outputDirectory>
      <artifactItems>{"".join(map(_item, names))}</artifactItems>
    </configuration>
  </plugin></plugins></build>
</project>"""


def _item(name: str) -> str:
    """A jar, named by its path in the repository, as Maven names it."""
    *group, artifact, version, file = name.split("/")
    classifier = file.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    tags = {"groupId": ".".join(group), "artifactId": artifact, "version": version, "classifier": classifier}
    return f"<artifactItem>{''.join(f'<{tag}>{text}</{tag}>' for tag, text in tags.items())}</artifactItem>"
