"""Links of pages to each other."""

import re


def with_links(text: str) -> str:
    """A text of the package in which names of pages, such as ``docs/errors.md``, are links to them."""
    return re.sub(r"\bdocs/(\w+)\.md\b", lambda page: f"[{page[1].capitalize()}]({page[1]}.md)", text)
