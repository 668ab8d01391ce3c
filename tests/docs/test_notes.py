"""Docstrings and comments use none of the phrases that readers had to read twice."""

import ast
import io
import re
import tokenize

from integration.docs import ROOT
from tests.docs.test_complete import MODULES, UNCLEAR

# For docstrings and comments; "there are none" is plain.
PHRASES = {
    **{pattern: better for pattern, better in UNCLEAR.items() if "none" not in pattern},
    r"(?<!there )\bare none\b": "are not ...",
    r"\bso many\b": "this many, the number given",
    r"\bof (?:its|their|our|one's) own\b": "its own ..., separate",
    r"\bas of [`:]": "see",
    r"\bin (?:their|its) place\b|\bplace of\b": "instead of",
}


def test_no_docstring_or_comment_must_be_read_twice():
    found = []
    for module in MODULES:
        text = " ".join(notes_of(module.read_text()).split())
        for pattern, better in PHRASES.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                context = text[max(0, match.start() - 40) : match.end() + 20]
                found.append(f"{module.relative_to(ROOT)}: {context!r}: write {better!r}")
    assert found == []


def notes_of(source):
    """The docstrings and the comments of a module."""
    nodes = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    docs = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    return " | ".join(docs) + " | " + " ".join(comments)
