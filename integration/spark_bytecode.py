"""Make a SPARK_HOME with a zip of PySpark that has bytecode, and links to all else.

    python -m integration.spark_bytecode FOLDER

Spark's Python processes import PySpark from ``python/lib/pyspark.zip``, which has sources only, and compile
them at each start: 0.9 s of CPU, and 0.4 s with bytecode.
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from zipfile import ZipFile

import pyspark

_ZIP = Path("python", "lib", "pyspark.zip")
# The flag of bytecode that is not compared with its source, and 8 bytes that nobody reads.
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
_HEADER = 16  # bytes before the code in a file of bytecode


def main(folder: Path) -> None:
    """Make the folder anew."""
    installed = Path(pyspark.__file__).parent
    shutil.rmtree(folder, ignore_errors=True)
    target = folder / _ZIP
    target.parent.mkdir(parents=True)
    for parent in (Path(), Path("python"), _ZIP.parent):
        for each in (installed / parent).iterdir():
            if not (folder / parent / each.name).exists() and each.name != _ZIP.name:
                (folder / parent / each.name).symlink_to(each)
    shutil.copy(installed / _ZIP, target)
    with ZipFile(target, "a") as zipped:
        for name in zipped.namelist():
            code = Path(cache_from_source(str(installed.parent / name))) if name.endswith(".py") else None
            if code is not None and code.exists():
                zipped.writestr(f"{name}c", MAGIC_NUMBER + _UNCHECKED + code.read_bytes()[_HEADER:])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
