"""Facts in a model's text that neither the user nor a tool stated.

A fact is a token with a digit, an email address, or two capitalized words in a row, such as a person's name. Single
digits are not checked: they number lists and count things.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

_CODE: Final = re.compile(r"```(?:python|bash|sh|javascript|js)\b.*?(?:```|\Z)", re.S)
_TAG: Final = re.compile(r"</?(?:tools?|tool_call|tool_response)>")
_TOKEN: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|[\w./:,-]*\d[\w./:,%-]*")
_NAME: Final = re.compile(r"(?<=[a-z,:] )[A-Z][a-z]+ [A-Z][a-z]+\b")
_LIST_NUMBER: Final = re.compile(r"^\s*\d+[.)] ", re.M)
_SUCCESS: Final = re.compile(
    r"\b(?:has|have) (?:now )?been (?:successfully )?\w+(?:ed|t)\b|\bsuccessfully\b|\bI(?:'ve| have) \w+ed\b", re.I
)
_DECODER: Final = json.JSONDecoder()


def is_leak(text: str) -> bool:
    """Returns whether the text contains a call as JSON, or the start of one."""
    return visible_text(text) != _TAG.sub("", text)


def visible_text(text: str) -> str:
    """Returns the text without calls, tags and code."""
    text = _CODE.sub("", _TAG.sub("", text))
    parts: list[str] = []
    at = 0
    for start in _starts(text):
        if start >= at:
            parts.append(text[at:start])
            at = _end_of_call(text, start)
    return "".join([*parts, text[at:]])


def unsupported(text: str, sources: Iterable[str]) -> list[str]:
    """Returns the facts in the text that no source contains.

    Args:
        text: the model's text.
        sources: what the user and the tools stated.
    """
    known = _plain(" ".join(sources))
    numbers = {float(each) for each in re.findall(r"\d+(?:\.\d+)?", known)}
    seen = visible_text(text)
    found = [match[0].strip(".,:;-/%") for match in _TOKEN.finditer(_LIST_NUMBER.sub("", seen))]
    found += _NAME.findall(seen)
    return [fact for fact in dict.fromkeys(found) if not _is_known(_plain(fact), known, numbers)]


def without_echo(result: str, arguments: str) -> str:
    """Returns a tool's result; an error without the values that it repeats from the arguments."""
    if not result.startswith('{"error"'):
        return result
    for value in re.findall(r'"((?:[^"\\]|\\.)+)"', arguments):
        result = result.replace(value, "")
    return result


def reports_success(text: str) -> bool:
    """Returns whether the text reports that something was done."""
    return bool(_SUCCESS.search(visible_text(text)))


def _is_known(fact: str, known: str, numbers: set[float]) -> bool:
    if fact in known or (len(fact) == 1 and fact.isdigit()):
        return True
    try:
        return float(fact) in numbers
    except ValueError:
        return False


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3})", "", text).lower()


def _starts(text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"\{+\s*\"name\"", text))


def _end_of_call(text: str, start: int) -> int:
    """Returns where the call that starts there ends: at the end of the text if it is not complete JSON."""
    inner = start
    while text.startswith("{{", inner):
        inner += 1
    try:
        value, end = _decode(text, inner)
    except ValueError:
        return len(text)
    return end if isinstance(value, dict) else start


def _decode(text: str, start: int) -> tuple[Any, int]:
    return _DECODER.raw_decode(text, start)
