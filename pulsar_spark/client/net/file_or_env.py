"""Reads secrets from the file or environment variable that an option names."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from pulsar_spark.errors import BrokerError

_WHERE = "on the hosts of the query's driver and its tasks"


def path_of(url: str) -> Path:
    """Returns the path of ``file:///PATH`` or ``file:PATH``; any other text is a path."""
    return Path(unquote(url[5:].removeprefix("//")) if url.startswith("file:") else url)


def text_at(place: str, option: str, kind: type[BrokerError]) -> str:
    """Reads the text of ``file:///PATH`` or ``env:NAME``; returns any other text unchanged.

    Args:
        place: value of the user's option; secret.

    Raises:
        BrokerError: an error of the class ``kind``: there is no such file or variable.
    """
    if place.startswith("file:"):
        try:
            return path_of(place).read_text()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise kind(
                f"the file that {option} names cannot be read: {reason}",
                advice=f"It must be readable {_WHERE}",
            ) from None
    if not place.startswith("env:"):
        return place
    name = place.removeprefix("env:")
    if name not in os.environ:
        raise kind(
            f"the environment variable that {option} names is not set",
            advice=f"It must be set {_WHERE} (spark.executorEnv...)",
        )
    return os.environ[name]
