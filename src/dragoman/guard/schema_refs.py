"""The schemas in a schema, by what refers to them: paths, `$anchor` and `$id`, nothing elsewhere.

Source: https://json-schema.org/draft/2020-12/json-schema-core, 8.2 (2020-12); `$id: "#name"` is an anchor in drafts 6
and 7.
"""

import re
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin


class Unbounded(ValueError):
    """What cannot be checked in bounded time; the message says why, as "it …"."""


class Documents:
    """Everything in one schema that a reference can name."""

    def __init__(self, root: Any) -> None:
        """Raises: Unbounded: two parts have one name, so that it cannot be told which is meant."""
        self._root = root
        self._resources: dict[str, Any] = {"": root}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._bases: dict[int, str] = {}
        """Of parts that have another base than the root's, by identity."""
        left: list[tuple[Any, str]] = [(root, "")]
        while left:
            value, base = left.pop()
            if isinstance(value, dict):
                base = self._named(value, base)
                left += [(each, base) for each in value.values()]
            elif isinstance(value, list):
                left += [(each, base) for each in value]

    def find(self, reference: str, at: Any = None) -> Any:
        """What a reference in the schema `at` refers to; None where that is nothing here."""
        base = self._bases.get(id(at), "")
        url, name = (base, reference[1:]) if reference.startswith("#") else urldefrag(urljoin(base, reference))
        found, name = self._resources.get(url), unquote(name)
        if name and not name.startswith("/"):
            return self._anchors.get((url, name))
        for part in name.split("/")[1:]:
            found = _step(found, part.replace("~1", "/").replace("~0", "~"))
        return found

    def _named(self, schema: dict[str, Any], base: str) -> str:
        """Its base, once it can be found by its names."""
        own = schema.get("$id")
        url, _, name = own.partition("#") if isinstance(own, str) else ("", "", "")
        if url:
            base = urljoin(base, url)
            self._add(self._resources, base, schema)
        if base:
            self._bases[id(schema)] = base
        for anchor in (name, schema.get("$anchor")):
            if isinstance(anchor, str) and anchor and not anchor.startswith("/"):
                self._add(self._anchors, (base, anchor), schema)
        return base

    def _add(self, known: dict[Any, Any], name: Any, schema: Any) -> None:
        if known.setdefault(name, schema) is not schema:
            raise Unbounded("it has two parts of one name")


def _step(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return value[int(key)] if re.fullmatch("[0-9]{1,6}", key) and int(key) < len(value) else None
    return value.get(key) if isinstance(value, dict) else None
