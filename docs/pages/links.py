"""Links of pages to each other."""

import re

# Titles that are not the page's name with a capital letter.
_TITLES = {"api": "Python API", "pulsar5": "Pulsar 5"}


def with_links(text: str) -> str:
    """A text of the package in which names of pages, such as ``docs/errors.md``, are links to them."""
    return re.sub(r"\bdocs/(\w+)\.md\b", lambda page: f"[{_title(page[1])}]({page[1]}.md)", text)


def _title(page: str) -> str:
    return _TITLES.get(page, page.capitalize())
