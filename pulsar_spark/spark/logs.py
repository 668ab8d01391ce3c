"""Log lines of processes that Spark starts, planner and tasks, where no program can configure logging.

Their standard error goes to Spark's own log on that machine. The level is that of the
option ``logLevel``, which each query sets for its processes: a worker may serve another query next.
"""

from __future__ import annotations

import hashlib
import logging
import re

from pulsar_spark.client import ClientOptions, login_risk, variables_of_secrets
from pulsar_spark.spark.application_folder import application_folder

LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}

# The default of spark.redaction.regex.
REDACTED = "(?i)secret|password|token|access[.]?key"

_logger = logging.getLogger("pulsar_spark")

# The format of Spark's console: time, level, logger, message.
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")


def set_up_logs(level: int | None) -> None:
    """Show this package's log lines in this process from a level on, each once.

    Args:
        level: level of :mod:`logging`; None: the level that is configured already, otherwise WARNING.
    """
    _logger.setLevel(logging.NOTSET if level is None else level)
    if not _logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_FORMAT)
        _logger.addHandler(handler)


def warn_of_login(options: ClientOptions, log_key: str | None = None) -> None:
    """Warn, once in the application, if others can read a secret; raises as ``login_risk``."""
    risks = [login_risk(options)]
    risks += [
        f"Spark shows the environment variable {name} in the UI and in YARN's logs. Rename it: Spark hides "
        "only names with SECRET, PASSWORD or TOKEN"
        for name in variables_of_secrets(options, log_key)
        if not re.search(REDACTED, name)
    ]
    for risk in risks:
        if risk is not None and is_first_to_say(risk):
            _logger.warning("%s", risk)


def is_first_to_say(what: str) -> bool:
    """Whether this is the application's first call with this text on this machine, in any process.

    Spark runs the tasks of a query in several processes, and each step of its driver in another one. A file
    in Spark's folder for the application records the texts; without such a folder the result is True.
    """
    try:
        folder = application_folder() / "pulsar_spark_said"
        folder.mkdir(exist_ok=True)
        (folder / hashlib.sha256(what.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    except (OSError, RuntimeError):
        return True  # Spark does not run in or beside this process, or the folder is not writable
    return True
