"""Changes values of one table in the text of a TOML file; all other lines stay, with their comments.

    set_values(text, "keys.alice", {"sha256": '"ab12"', "previous": None})

Only tables with a header of their own are changed. The caller checks the result.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence

_HEADER = re.compile(r"\s*\[")


def set_values(text: str, table: str, values: Mapping[str, str | None]) -> str | None:
    """Returns the text with these values; None: it has no table with such a header.

    Args:
        text: The TOML.
        table: The name of the table, in parts of letters, digits, '-' and '_'.
        values: The values of its keys, as TOML; None removes a key.
    """
    lines = text.splitlines(keepends=True)
    parts = [rf"(?:{re.escape(part)}|\"{re.escape(part)}\"|'{re.escape(part)}')" for part in table.split(".")]
    header = re.compile(r"\s*\[\s*" + r"\s*\.\s*".join(parts) + r"\s*\]\s*(?:#.*)?\s*")
    first = next((number + 1 for number, line in enumerate(lines) if header.fullmatch(line)), None)
    if first is None:
        return None
    end = next((number for number in range(first, len(lines)) if _HEADER.match(lines[number])), len(lines))
    body = lines[first:end]
    for key in values:
        _remove(body, key)
    new = [f"{key} = {value}\n" for key, value in values.items() if value is not None]
    return "".join([*lines[: first - 1], lines[first - 1].rstrip("\r\n") + "\n", *new, *body, *lines[end:]])


def _remove(body: list[str], key: str) -> None:
    """Removes a key with its value, which can have several lines."""
    start = re.compile(rf"\s*{re.escape(key)}\s*=")
    for number, line in enumerate(body):
        if start.match(line):
            del body[number : number + _line_count(body[number:])]
            return


def _line_count(lines: Sequence[str]) -> int:
    """Returns how many lines the value has that begins in the first one."""
    for count in range(1, len(lines)):
        try:
            tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return count
    return len(lines)
