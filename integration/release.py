"""Build the wheel and the sdist of a release, and check them.

    python3 -m integration release --url https://HOST/OWNER/pulsar_spark/blob/v0.1.0

The URL is where the files of this version can be read: the package's page on an index has no files beside it,
so links and pictures of the README become absolute below it, and the package names it as its home. Both files
are written to `dist`, which must not hold others. Nothing is uploaded. The bill of materials is written
to `build`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from integration.deploy.environments import copy_of_project
from integration.helpers.local_spark import ROOT
from integration.sbom import sbom
from pulsar_spark.version import VERSION

# Of Markdown: a picture or a link, whose target is no address and no anchor of the same page.
_RELATIVE = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#|/)([^)\s]+)(\))")

# What the package says of itself, by the path below the URL.
_HOMES = {
    "Documentation": "docs/index.md",
    "Changelog": "CHANGELOG.md",
    "Security": "SECURITY.md",
    "Source": "README.md",
}


def absolute_links(page: str, url: str) -> str:
    """A Markdown page with each relative link made absolute; pictures are asked for as files."""

    def absolute(found: re.Match[str]) -> str:
        picture, opening, target, closing = found.groups()
        return f"{picture}{opening}{url}/{target}{'?raw=true' if picture else ''}{closing}"

    # A picture within a link is taken first.
    return _RELATIVE.sub(absolute, page)


def with_homes(setup_cfg: str, url: str) -> str:
    """The text of setup.cfg with the addresses of the package's pages."""
    lines = [f"    {name} = {url}/{path}" for name, path in _HOMES.items()]
    return setup_cfg.replace("[metadata]\n", "\n".join(["[metadata]", "project_urls =", *lines, ""]), 1)


def build(url: str, folder: Path) -> list[Path]:
    """Write the wheel and the sdist into a folder; returns both.

    Raises:
        subprocess.CalledProcessError: setuptools cannot build them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        source = copy_of_project(Path(home))
        for name, change in (("README.md", absolute_links), ("setup.cfg", with_homes)):
            file = source / name
            file.write_text(change(file.read_text(), url))
        _run_setuptools(source, "build_wheel", folder)
        _run_setuptools(source, "build_sdist", folder)
    return sorted(folder.iterdir())


def _run_setuptools(source: Path, entry: str, folder: Path) -> None:
    # Its own entry: what is installed builds, not what an index has today.
    code = f"import sys\nfrom setuptools import build_meta\nbuild_meta.{entry}(sys.argv[1])"
    command = [sys.executable, "-c", code, str(folder.resolve())]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


def check(wheel: Path, sdist: Path) -> list[str]:
    """What is wrong with the files of a release, in words.

    A tool looks for what no wheel may hold, and the sdist must give the same wheel: then all that is
    needed to build and to describe the package is there.

    Raises:
        subprocess.CalledProcessError: setuptools cannot build from the sdist.
    """
    tool = [sys.executable, "-m", "check_wheel_contents", str(wheel)]
    done = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, check=False)
    problems = done.stdout.splitlines() + done.stderr.splitlines() if done.returncode else []
    with tempfile.TemporaryDirectory() as home:
        with tarfile.open(sdist) as archive:
            archive.extractall(home, filter="data")
        (source,) = Path(home).iterdir()
        again = Path(home) / "again"
        again.mkdir()
        _run_setuptools(source, "build_wheel", again)
        (rebuilt,) = again.iterdir()
        before, after = _contents(wheel), _contents(rebuilt)
    differing = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return problems + [f"{name} differs in the wheel that the sdist gives" for name in differing]


def _contents(wheel: Path) -> dict[str, int]:
    """The checksum of each file."""
    with zipfile.ZipFile(wheel) as opened:
        return {each.filename: each.CRC for each in opened.infolist()}


def main(arguments: Sequence[str]) -> int:
    """Build and check; returns the exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python3 -m integration release", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--url", required=True, help="where the files of this version can be read, https://")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder (default: %(default)s)")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", help="of the bill of materials (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"https://[^\s?#]+[^\s?#/]", given.url):
        parser.error("--url: an https:// address without a slash at its end")
    if given.dist.exists() and any(given.dist.iterdir()):
        parser.error(f"{given.dist} is not empty: remove what is there")
    sdist, wheel = sorted(build(given.url, given.dist), key=lambda file: file.suffix)
    materials = given.build / f"pulsar_spark-{VERSION}.cdx.json"
    materials.parent.mkdir(parents=True, exist_ok=True)
    materials.write_text(sbom())
    problems = check(wheel, sdist)
    print(wheel, sdist, materials, *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
