"""Log lines of the processes that Spark starts: planner and tasks, where no program can set up logging.

What they write to the standard error goes where Spark's own log of that machine goes. The level is that of
the option ``logLevel``, which each query sets for its processes: a worker may serve another query next.
"""

from __future__ import annotations

import hashlib
import logging

from pulsar_spark.spark.application_folder import application_folder

LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}

_logger = logging.getLogger("pulsar_spark")

# As Spark's console has it: time, level, who, what.
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")


def set_up_logs(level: int | None) -> None:
    """Show this package's log lines of this process from a level on, each once.

    Args:
        level: of :mod:`logging`; None for what is set up here already, else WARNING.
    """
    _logger.setLevel(logging.NOTSET if level is None else level)
    if not _logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_FORMAT)
        _logger.addHandler(handler)


def is_first_to_say(what: str) -> bool:
    """Whether no process of this application on this machine has called this with the same text before.

    Spark runs the tasks of a query in several processes, and each step of its driver in another one. A file
    in the folder that Spark has for the application keeps what was said; without such a folder it is True.
    """
    try:
        folder = application_folder() / "pulsar_spark_said"
        folder.mkdir(exist_ok=True)
        (folder / hashlib.sha256(what.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    except (OSError, RuntimeError):
        return True  # Spark does not run in or beside this process, or the folder cannot be written
    return True
