"""Values of settings as text: in TOML, and in errors about wrong ones."""

import json
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

from dragoman.redaction.arguments import has_secret_argument, has_secret_url

SECRET = ("server.api_keys", "response_store.seal_key")
"""Settings whose values are never shown."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|header|cookie", re.IGNORECASE)
"""Names of settings of other packages whose values are not shown."""


def is_secret_setting(key: str, value: object) -> bool:
    """Returns whether the value of a setting is, or contains, a secret, and must not be shown.

    Args:
        key: The key, such as `mcp.NAME.command`.
        value: The value, also of a wrong type.
    """
    if not value:
        return False
    section, _, rest = key.partition(".")
    name = rest.rpartition(".")[2]
    if key in SECRET or name == "api_key" or (section, name) == ("mcp", "headers"):
        return True
    if section == "backends" or key == "hooks.settings":
        return _has_secret_name(name, value)
    if section == "keys" and name in ("secret", "sha256", "previous"):
        return True
    if (section, name) == ("mcp", "command"):
        arguments = value.split() if isinstance(value, str) else value
        return isinstance(arguments, list | tuple) and has_secret_argument([str(each) for each in arguments])
    if not isinstance(value, str):
        return False
    return has_secret_url(value) or ((section, name) == ("mcp", "url") and "?" in value)


def _has_secret_name(name: str, value: object) -> bool:
    """Returns whether a setting of another package, or one within it, has the name of a secret."""
    if isinstance(value, dict):
        return any(_has_secret_name(str(key), each) for key, each in value.items())
    if isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        return any(_has_secret_name(name, each) for each in value)
    return bool(_SECRET_NAME.search(name)) or (isinstance(value, str) and has_secret_url(value))


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
    secret = name == "headers" or is_secret_setting(prefix + key, value)
    got = "what is not shown" if secret else toml(value if index is None else value[int(index)])
    expected = f"{_KINDS[kind]} {_LIMITS[sign]} {limit.removesuffix('.0')}" if sign else _KINDS[kind]
    advice = f'; write {name} = ["…", "…"]' if kind == "array" else ""
    return f"expected {expected}, got {got[:100]} - at {prefix}{key}, from {origin[prefix + key]}{advice}"
