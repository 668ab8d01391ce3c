"""Build the sdist and the wheel of a release, check them, and write the bill of materials.

    python3 -m integration release --url https://HOST/OWNER/pulsar_spark/blob/v0.1.0

The URL is where the files of this version can be read: the package's page on an index has no files beside it,
so links and pictures of the README become absolute below it, and the package names it as its home. Both files
are written to `dist`, which must not hold others; the wheel is built from the sdist. Nothing is uploaded. The
bill of materials is written to `build`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from integration.__main__ import lock_file
from integration.deploy.environments import copy_of_project
from integration.helpers.local_spark import ROOT
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


def source_of(url: str, folder: Path) -> Path:
    """Copy what a release is built from into a folder, with the addresses of its pages."""
    source = copy_of_project(folder)
    for name, change in (("README.md", absolute_links), ("setup.cfg", with_homes)):
        file = source / name
        file.write_text(change(file.read_text(), url))
    return source


def build(url: str, dist: Path, materials: Path) -> None:
    """Build both files, check them, and write the bill of materials.

    Raises:
        subprocess.CalledProcessError: a tool failed; it has printed why.
    """
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        tools, about = home / "tools", home / "pyproject.toml"
        pip = ["--quiet", "--disable-pip-version-check", "install", "--target", str(tools)]
        _run(home, tools, "pip", *pip, "--no-deps", "--require-hashes", "-r", str(lock_file("release")))
        # What is installed builds, not what an index has today.
        _run(home, tools, "build", "--no-isolation", "--outdir", str(dist), str(source_of(url, home)))
        _run(home, tools, "twine", "check", "--strict", *map(str, dist.iterdir()))
        _run(ROOT, tools, "check_wheel_contents", *map(str, dist.glob("*.whl")))
        about.write_text(f'[project]\nname = "pulsar-spark"\nversion = "{VERSION}"\nlicense = "Apache-2.0"\n')
        options = ["--output-reproducible", "--pyproject", str(about), "--mc-type", "library"]
        # What users need, without tools.
        required = str(lock_file("demo"))
        _run(home, tools, "cyclonedx_py", "requirements", *options, "-o", str(materials), required)


def _run(folder: Path, tools: Path, module: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(tools)}
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, env=environment, check=True)


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
    dist, materials = given.dist.resolve(), given.build.resolve() / f"pulsar_spark-{VERSION}.cdx.json"
    if dist.exists() and any(dist.iterdir()):
        parser.error(f"{given.dist} is not empty: remove what is there")
    materials.parent.mkdir(parents=True, exist_ok=True)
    try:
        build(given.url, dist, materials)
    except subprocess.CalledProcessError as error:
        print(f"release: {error.cmd[2]} failed", file=sys.stderr)
        return 1
    print(*dist.iterdir(), materials, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
