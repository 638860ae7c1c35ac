"""The line of the settings file that an error is about."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dragoman.core.errors import ConfigError

_SYNTAX: Final = re.compile(r"\(at line (\d+), column \d+\)")
_KEY: Final = re.compile(r"unknown setting '([^']+)'| - at ([^\s,;]+)")
"""How messages about a setting name its key."""
_MAX_CHARS: Final = 1_000_000
"""In a larger file no line is looked for."""


def error_line(error: ConfigError, path: Path | None) -> int:
    """Returns the number of the line that the error is about, from 1; 0: it is not known.

    Args:
        error: The error about the settings.
        path: The settings file.
    """
    if syntax := _SYNTAX.search(error.message):
        return int(syntax[1])
    match = _KEY.search(error.message)
    if match is None or path is None:
        return 0
    try:
        return line_of(path.read_text(encoding="utf-8"), match[1] or match[2])
    except (OSError, UnicodeDecodeError):
        return 0


def with_line(message: str, file: str, line: int) -> str:
    """Returns the message of an error with the line that it is about, unless that is not known or part of it.

    Args:
        message: The message.
        file: The settings file.
        line: The number of the line; 0: not known.
    """
    if not line or f"line {line}," in message:
        return message
    return f"{message}, line {line}" if message.endswith(file) else f"{message} ({file}, line {line})"


def line_of(text: str, key: str) -> int:
    """Returns the number of the line that sets this key, from 1; 0: none does.

    Args:
        text: The settings file.
        key: The key, such as `upstreams.far.url`.
    """
    if len(text) > _MAX_CHARS:
        return 0
    # tomllib reports no positions: the line is the first one with which the parsed text has the key.
    lines, last_part = text.splitlines(keepends=True), key.rpartition(".")[2]
    began = 0
    for number, line in enumerate(lines, 1):
        began = began or (number if last_part in line else 0)
        if not began:
            continue
        try:
            tables = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:  # the value continues on the next line
            continue
        if _has(tables, key):
            return began
        began = 0
    return 0


def _has(tables: Mapping[str, Any], key: str) -> bool:
    """Returns whether the tables have this key, whose parts may contain dots themselves."""
    return key in tables or any(
        key.startswith(f"{name}.") and _has(value, key[len(name) + 1 :]) for name, value in _tables(tables)
    )


def _tables(tables: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields all tables, those of an array as `routes[1]`."""
    for name, value in tables.items():
        if isinstance(value, dict):
            yield name, value
        elif isinstance(value, list):
            yield from ((f"{name}[{number}]", each) for number, each in enumerate(value, 1) if isinstance(each, dict))
