"""Estimates how expensive a schema is to compile for constrained decoding."""

from collections.abc import Iterator
from typing import Any

import msgspec

from dragoman.core.messages import JsonText


def complexity(schema: JsonText) -> tuple[int, int]:
    """Returns the number of optional properties, and the number of schemas with several types."""
    optional = unions = 0
    for part in _parts(msgspec.json.decode(schema)):
        properties, required = part.get("properties"), part.get("required")
        if isinstance(properties, dict):
            optional += len(properties.keys() - set(required if isinstance(required, list) else ()))
        unions += "anyOf" in part or isinstance(part.get("type"), list)
    return optional, unions


def _parts(root: Any) -> Iterator[dict[str, Any]]:
    left = [root]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part
