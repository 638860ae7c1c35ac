"""Names: a public class name is used once in the package, and no name is a word that does not tell what a value is."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from .finding import Finding


def check(trees: Mapping[str, ast.Module]) -> Iterator[Finding]:
    """Yields each public class whose name another class of `trees` (path -> module) has too."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((path, node.lineno))
    for name, found in places.items():
        for path, line in found[1:]:
            first = ":".join(map(str, found[0]))
            yield Finding(path, line, f"class {name}, also at {first}", "give each a name that says its job")


# Words that do not tell what a value is -> what to write instead.
VAGUE = {
    "amiss": "what is wrong: problems, failures",
    "asked": "the noun: request, call, question",
    "behind": "after (in text), upstream (a server)",
    "beside": "the noun, or next_to",
    "came": "the noun: request, event_type",
    "gone": "removed, or the noun",
    "heard": "answer, output",
    "heeded": "honoured, supported",
    "held": "constraint (decoding), buffered (delivery), or the noun",
    "mended": "repaired",
    "said": "text, message, content, output, response",
    "shown": "the noun: escaped, printed, images",
    "slips": "json_errors",
    "spared": "kept, keep_rules",
    "taken": "the noun: steps, end, used",
    "thought": "reasoning",
    "thoughts": "reasoning",
    "told": "message, warning, notices, result",
    "unread": "unreadable, passthrough",
    "words": "text, message, keywords",
}


def _identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields each name that the module defines, with its line: of classes, functions, parameters, variables."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def check_words(path: str, tree: ast.AST) -> Iterator[Finding]:
    """Yields each identifier of `VAGUE`, in any case and with any number of leading underscores."""
    for name, line in _identifiers(tree):
        instead = VAGUE.get(name.strip("_").lower())
        if instead:
            yield Finding(path, line, f"name {name}", f"write: {instead}")
