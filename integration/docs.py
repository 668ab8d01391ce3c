"""What the documentation holds: pages, anchors, links and blocks of code, for the tests of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_AT_ROOT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in _AT_ROOT), *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^ *```(.*)$")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_LINK = re.compile(r"\]\(<?([^)>\s]+)>?\)")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        language: what the fence says, ``{name} argument`` for a directive of the site.
    """

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for messages and names of tests."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page, or those in some languages."""
    return [block for block, _ in _parts(page) if block and (not languages or block.language in languages)]


def links(page: Path) -> list[str]:
    """The targets of links and pictures."""
    return _LINK.findall(_prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its own, and those of headings as GitHub and the site make them."""
    found: dict[str, int] = dict.fromkeys(_ANCHOR.findall(page.read_text()), 1)
    for heading in _HEADING.findall(_prose(page, code=True)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[slug] = found.get(slug, 0) + 1
    return {f"{slug}-{n}" if n else slug for slug, count in found.items() for n in range(count)}


def _prose(page: Path, *, code: bool = False) -> str:
    """A page without its blocks, and unless ``code`` is given without code within lines."""
    text = "\n".join(line for block, line in _parts(page) if block is None)
    return text if code else re.sub(r"`[^`\n]+`", "", text)


def _parts(page: Path) -> Iterator[tuple[Block | None, str]]:
    """Blocks, each with an empty text, and the lines between them."""
    opened: tuple[int, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, inside = (number + 1, fence[1].strip()), []
        elif opened is None:
            yield None, line
        elif fence:
            yield Block(page, *opened, "\n".join(inside)), ""
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"{page}: a block has no end"
