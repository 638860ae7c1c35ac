"""Docstrings: `Args:` that agree with the signature, and no placeholders."""

import ast
import re
from collections.abc import Iterator

from .finding import Finding

PLACEHOLDERS = {"The same.", "Pass on.", "Ask.", "Forwarded.", "As behind.", "Of one API."}
NULL_OBJECT = {"Prints nothing.", "Records nothing."}
"""Short docstrings that state all there is to say."""

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_SECTION = re.compile(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", re.M)
_NAME = re.compile(r"^    \*{0,2}(\w+)(?: \([^)]*\))?:", re.M)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    args = function.args
    every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    return [arg.arg for arg in every if arg and arg.arg not in ("self", "cls")]


def check(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yields placeholders, and every `Args:` that differs from the parameters of its function."""
    for node in ast.walk(tree):
        if not isinstance(node, _FUNCTIONS | ast.ClassDef) or not (text := ast.get_docstring(node)):
            continue
        if text in PLACEHOLDERS or (len(text.split()) <= 2 and "`" not in text and text not in NULL_OBJECT):
            yield Finding(path, node.lineno, f"placeholder {text!r}", "say what the name does not, or delete it")
        if isinstance(node, _FUNCTIONS) and (section := _SECTION.search(text)):
            described, wanted = _NAME.findall(section[1]), _parameters(node)
            if described != wanted:
                yield Finding(path, node.lineno, f"Args: {', '.join(described)}", f"describe: {', '.join(wanted)}")
