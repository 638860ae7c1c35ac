"""Resolves references within one schema: JSON pointers, `$anchor` and `$id`. Nothing is fetched.

Source: https://json-schema.org/draft/2020-12/json-schema-core, 8.2 (2020-12); `$id: "#name"` is an anchor in drafts 6
and 7.
"""

import re
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin


class UnboundedCheck(ValueError):
    """A schema or a value cannot be checked in bounded time; the message gives the reason, as "it …"."""


class SchemaRefs:
    """All parts of one schema that a reference can name."""

    def __init__(self, root: Any) -> None:
        """Raises:
        UnboundedCheck: Two parts have the same name, so references to it are ambiguous.
        """
        self._root = root
        self._resources: dict[str, Any] = {"": root}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._bases: dict[int, str] = {}
        """Base URLs of the parts whose base is not the root's, by identity of the part."""
        left: list[tuple[Any, str]] = [(root, "")]
        while left:
            value, base = left.pop()
            if isinstance(value, dict):
                base = self._register_names(value, base)
                left += [(each, base) for each in value.values()]
            elif isinstance(value, list):
                left += [(each, base) for each in value]

    def resolve(self, reference: str, at: Any = None) -> Any:
        """Returns what a reference in the schema `at` refers to; None if that is not in this schema."""
        base = self._bases.get(id(at), "")
        url, name = (base, reference[1:]) if reference.startswith("#") else urldefrag(urljoin(base, reference))
        schema, name = self._resources.get(url), unquote(name)
        if name and not name.startswith("/"):
            return self._anchors.get((url, name))
        for part in name.split("/")[1:]:
            schema = _child(schema, part.replace("~1", "/").replace("~0", "~"))
        return schema

    def _register_names(self, schema: dict[str, Any], base: str) -> str:
        """Registers the schema under its names and returns its base URL."""
        own = schema.get("$id")
        url, _, name = own.partition("#") if isinstance(own, str) else ("", "", "")
        if url:
            base = urljoin(base, url)
            self._register(self._resources, base, schema)
        if base:
            self._bases[id(schema)] = base
        for anchor in (name, schema.get("$anchor")):
            if isinstance(anchor, str) and anchor and not anchor.startswith("/"):
                self._register(self._anchors, (base, anchor), schema)
        return base

    def _register(self, known: dict[Any, Any], name: Any, schema: Any) -> None:
        if known.setdefault(name, schema) is not schema:
            raise UnboundedCheck("it has two parts of one name")


def _child(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return value[int(key)] if re.fullmatch("[0-9]{1,6}", key) and int(key) < len(value) else None
    return value.get(key) if isinstance(value, dict) else None
