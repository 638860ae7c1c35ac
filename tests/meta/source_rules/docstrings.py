"""Docstrings: `Args:` of functions with many parameters, which agree with the signature, and no placeholders."""

import ast
import re
from collections.abc import Iterator

from .finding import Finding

PLACEHOLDERS = {"The same.", "Pass on.", "Ask.", "Forwarded.", "As behind.", "Of one API."}

UNDESCRIBED_LIMIT = 3
"""Maximum number of parameters of a public function without `Args:`."""

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_SECTION = re.compile(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", re.M)
_NAME = re.compile(r"^    \*{0,2}(\w+)(?: \([^)]*\))?:", re.M)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    args = function.args
    every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    return [arg.arg for arg in every if arg and arg.arg not in ("self", "cls")]


def _public_functions(scope: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in scope.body:
        if isinstance(node, _FUNCTIONS) and not node.name.startswith("_"):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public_functions(node)


def check(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yields placeholders, every `Args:` that differs from the parameters of its function, and public functions without
    it that have more than `UNDESCRIBED_LIMIT` parameters."""
    for function in _public_functions(tree):
        if len(_parameters(function)) > UNDESCRIBED_LIMIT and not _SECTION.search(ast.get_docstring(function) or ""):
            yield Finding(path, function.lineno, f"{function.name} without Args:", "describe its parameters")
    for node in ast.walk(tree):
        if not isinstance(node, _FUNCTIONS | ast.ClassDef) or not (text := ast.get_docstring(node)):
            continue
        if text in PLACEHOLDERS or (len(text.split()) <= 2 and "`" not in text):
            yield Finding(path, node.lineno, f"placeholder {text!r}", "say what the name does not, or delete it")
        if isinstance(node, _FUNCTIONS) and (section := _SECTION.search(text)):
            described, wanted = _NAME.findall(section[1]), _parameters(node)
            if described != wanted:
                yield Finding(path, node.lineno, f"Args: {', '.join(described)}", f"describe: {', '.join(wanted)}")
