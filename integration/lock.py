"""Make the files in conf/environment again, with the newest versions setup.cfg allows; needs uv.

python3 -m integration.lock
"""

from __future__ import annotations

import subprocess

from integration.__main__ import ROOT, lock_file

_UV = ("uv", "pip", "compile", "--universal", "--python-version", "3.10", "--generate-hashes", "--upgrade")
_UV_SAYS_LESS = ("--no-header", "--no-annotate", "--quiet")


def main() -> None:
    """Make all of them; the smaller ones have the versions of the large one."""
    everything = lock_file("all")
    extras = [word for extra in ("dev", "docs") for word in ("--extra", extra)]
    _lock("all", "setup.cfg", *extras)
    _lock("demo", "setup.cfg", "--constraint", str(everything))
    _lock("build", "-", "--constraint", str(everything), given="setuptools >= 77\n")
    _lock("release", "-", "--constraint", str(everything), given="build\ncyclonedx-bom\ntwine\n")


def _lock(name: str, *arguments: str, given: str = "") -> None:
    command = [*_UV, *_UV_SAYS_LESS, *arguments, "--output-file", str(lock_file(name))]
    subprocess.run(command, cwd=ROOT, input=given, text=True, check=True)


if __name__ == "__main__":
    main()
