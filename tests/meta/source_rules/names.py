"""Names: a public class name is used once in the package."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from .finding import Finding

# Names that two modules define. Only ever remove one.
KNOWN: set[str] = set()


def check(trees: Mapping[str, ast.Module], known: set[str] = KNOWN) -> Iterator[Finding]:
    """Yields each public class whose name another class of `trees` (path -> module) has too."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((path, node.lineno))
    for name, found in places.items():
        for path, line in found[1:] if name not in known else ():
            first = ":".join(map(str, found[0]))
            yield Finding(path, line, f"class {name}, also at {first}", "give each a name that says its job")
    for name in sorted(known):
        if len(places[name]) < 2:
            yield Finding(
                "tests/meta/source_rules/names.py", 1, f"{name} in KNOWN", "it is unique now: remove it there"
            )
