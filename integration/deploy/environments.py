"""Pythons that have nothing but what docs/deploying.md asks for: what users and their clusters have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

from integration.helpers.local_spark import ROOT

# pyspark with its SQL extra, and what that brings.
_PYSPARK_SQL = ("pyspark", "py4j", "numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "six", "tzdata")


class Environment:
    """A virtual environment.

    Attributes:
        site: its site-packages.
    """

    def __init__(self, folder: Path, version: tuple[int, int] = sys.version_info[:2]) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = folder / "lib" / "python{}.{}".format(*version) / "site-packages"

    @property
    def spark_home(self) -> Path:
        """The folder of its pyspark, which is a whole Spark."""
        return self.site / "pyspark"

    def variables(self) -> dict[str, str]:
        """The environment variables for Spark's scripts, with no trace of the one that runs this."""
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))
        }
        own.pop("PYTHONPATH", None)
        python = str(self.python)
        return own | {
            "SPARK_HOME": str(self.spark_home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        }

    def pip(self, *arguments: str) -> None:
        """Install with pip.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Older versions of pip would install pyspark, a package of sources, in a way that keeps no wheel.
        command.append("--use-pep517")
        # Not with the PYTHONPATH of the one that runs this: what is there already is not installed.
        subprocess.run([*command, *arguments], env=self.variables(), check=True)


def build_wheel(folder: Path) -> Path:
    """Build this project's wheel; it must be for all platforms."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(copy_of_project(folder))], check=True)
    (wheel,) = folder.glob("*-py3-none-any.whl")
    return wheel


def build_sdist(folder: Path) -> Path:
    """Build this project's sdist."""
    source = copy_of_project(folder)
    # Setuptools' own entry: pip has no command for it.
    code = f"import setuptools.build_meta; setuptools.build_meta.build_sdist({str(folder)!r})"
    environment = installed(folder / "environment", sys.executable, "setuptools>=77")
    subprocess.run([str(environment.python), "-c", code], cwd=source, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def copy_of_project(folder: Path) -> Path:
    """Copy what a package is made of, so that building leaves nothing in the checkout."""
    copy = folder / "source"
    copy.mkdir(parents=True)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("pulsar_spark", "pulsar_spark_broker", "pyspark_pulsar", "pyspark_pulsar_spark"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def linked(folder: Path) -> Environment:
    """Make an environment with nothing but links to this one's pyspark and what its SQL extra brings."""
    venv.create(folder, with_pip=False)
    environment = Environment(folder)
    for name in _PYSPARK_SQL:
        link(name, environment.site)
    return environment


def installed(folder: Path, python: str, *requirements: str) -> Environment:
    """Make an environment with pip, by another Python."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    major, minor = map(int, done.stdout.split())
    environment = Environment(folder, (major, minor))
    environment.pip(*requirements)
    return environment


def link(distribution: str, site: Path) -> None:
    """Let another site-packages have what is installed here; does nothing where it is not."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return  # not every version of pandas wants it
    here = Path(sysconfig.get_path("purelib"))
    for top in sorted({file.parts[0] for file in files} - {"..", "__pycache__"}):
        target = next(
            root / top for root in (here, Path(sysconfig.get_path("platlib"))) if (root / top).exists()
        )
        if top == "pyspark":
            # A folder of its own: local-cluster writes into it.
            (site / top).mkdir()
            for child in target.iterdir():
                (site / top / child.name).symlink_to(child)
        else:
            (site / top).symlink_to(target)
