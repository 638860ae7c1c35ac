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
    "again": "retry, reask, second, is_repeated",
    "amiss": "what is wrong: problems, failures",
    "anew": "rebuilt, generated",
    "apart": "separate, new_turn, new_call",
    "asides": "vendor_only_fields",
    "asked": "the noun: request, call, question",
    "asker": "client",
    "astray": "misplaced",
    "begun": "has_started, or the noun: opening, starts",
    "behind": "after (in text), upstream (a server)",
    "beside": "the noun, or next_to",
    "came": "the noun: request, event_type",
    "eased": "defaults, overrides",
    "fit": "adapted, accepted, suitable",
    "fits": "matching, candidates, is_valid",
    "given": "the noun: value, arguments, items",
    "goes_on": "continues, has_next",
    "gone": "removed, or the noun",
    "had": "previous, existing",
    "heard": "answer, output",
    "heeded": "honoured, supported",
    "heeds": "honours, supports",
    "held": "constraint (decoding), buffered (delivery), or the noun",
    "held_back": "buffered",
    "is_there": "exists",
    "kept": "the noun: stored, remaining, forwarded",
    "kindly": "lenient",
    "left_open": "open_reasoning",
    "listed_as": "display_name",
    "lost": "changes, dropped, fallbacks",
    "meant": "expected, match, target",
    "meant_by": "resolve_display_name",
    "mended": "repaired",
    "mends": "repairs, enabled_repairs",
    "missed": "missing",
    "mood": "style",
    "must": "requirement, is_required",
    "of": "the noun: owner, text_of, types_at",
    "over": "finished",
    "own_words": "history, verbatim",
    "pass_on": "feed",
    "relay": "passthrough, response",
    "relayed": "is_passthrough",
    "said": "text, message, content, output, response",
    "says": "description, pattern",
    "shown": "the noun: escaped, printed, images",
    "slips": "json_errors",
    "so": "verdict, is_reported",
    "spared": "kept, keep_rules",
    "speaks": "is_assistant, has_text",
    "spoken": "the noun: text, parts",
    "subject": "context",
    "taken": "the noun: steps, end, used",
    "telling": "server_info, notice",
    "there": "existing, installed",
    "thinks": "has_reasoning",
    "thought": "reasoning",
    "thoughts": "reasoning",
    "to_type": "install_command",
    "told": "message, warning, notices, result",
    "unread": "unreadable, passthrough",
    "unsaid": "unenforced",
    "untold": "unknown, error",
    "wanted": "expected, options, or the noun",
    "was": "captured, previous",
    "whole": "is_complete, or the noun: body, text",
    "whom": "group, client",
    "within": "container, prefix, inner",
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
