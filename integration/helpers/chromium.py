"""A real browser: headless Chromium, as distributions package it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """The path of a Chromium.

    Raises:
        FileNotFoundError: there is none.
    """
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise FileNotFoundError("there is no Chromium: install your distribution's package, such as chromium")


def page_dom(program: str, url: str, profile: Path, milliseconds: int = 5000) -> str:
    """The HTML that a page consists of after its scripts have run for a while.

    Args:
        profile: a folder for the browser's own files.
        milliseconds: of the page's time.
    """
    return _run(program, url, profile, f"--virtual-time-budget={milliseconds}", "--dump-dom")


def screenshot(
    program: str, url: str, profile: Path, picture: Path, *, width: int, height: int, dark: bool = False
) -> None:
    """Write a PNG of a page as a browser shows it; other arguments as :func:`page_dom`."""
    flags = [f"--screenshot={picture}", f"--window-size={width},{height}", "--hide-scrollbars"]
    flags += ["--virtual-time-budget=5000", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
    _run(program, url, profile, *flags)


def _run(program: str, url: str, profile: Path, *flags: str) -> str:
    # It must not ask anybody for anything but the page.
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", *quiet, "--no-first-run"]
    command += [f"--user-data-dir={profile}", *flags, url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
