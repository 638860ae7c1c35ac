"""Values of settings as text: in TOML, and in errors about wrong ones."""

import json
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

SECRET = ("server.api_keys", "response_store.seal_key")
"""Settings whose values are never shown."""


def toml(value: object) -> str:
    """Returns a value as TOML."""
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return "a table" if isinstance(value, dict) else "unset" if value is None else str(value)


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a table",
}
_LIMITS = {"<=": "of at most", ">=": "of at least", "<": "below", ">": "over"}
_WRONG = re.compile(r"Expected `(\w+)`(?: ([<>]=?) ([\d.]+))?.* - at `\$\.(([\w.-]+)\.(\w+))(?:\[(\d+)\])?`")


def describe_error(message: str, tables: Mapping[str, Any], origin: Mapping[str, str], prefix: str = "") -> str:
    """Returns msgspec's `message` about a wrong value, with the key as the settings name it.

    Args:
        message: The text of msgspec's error.
        tables: Each table of the settings, by its key without `prefix`.
        origin: For each key, the file or variable that set it.
        prefix: What precedes the table's name in the key, such as "upstreams.".
    """
    if not (match := _WRONG.fullmatch(message)):
        return message
    kind, sign, limit, key, section, name, index = match.groups()
    value: Any = reduce(lambda table, part: table[part], (*section.split("."), name), tables)
    secret = key in SECRET or name in ("api_key", "headers")
    got = "what is not shown" if secret else toml(value if index is None else value[int(index)])
    expected = f"{_KINDS[kind]} {_LIMITS[sign]} {limit.removesuffix('.0')}" if sign else _KINDS[kind]
    advice = f'; write {name} = ["…", "…"]' if kind == "array" else ""
    return f"expected {expected}, got {got[:100]} - at {prefix}{key}, from {origin[prefix + key]}{advice}"
