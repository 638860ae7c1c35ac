"""Warnings of upstream requests in the notation of the case files."""

from collections.abc import Iterable, Iterator

from dragoman.core import events as ev
from dragoman.core import messages as v
from support.dialect_cases import CASES

ASKED = [c for c in CASES if c.kind.startswith("request")]


def told(warnings: Iterable[ev.Notice]) -> list[str]:
    """One line per code, with its details, or the message if there are none."""
    by_code: dict[str, list[str]] = {}
    for warning in warnings:
        by_code.setdefault(warning.code, []).append(warning.detail or warning.message)
    return [f"{code}: {', '.join(names)}" for code, names in by_code.items()]


def words(request: v.Request) -> list[str]:
    return [p.text for m in request.messages for p in m.parts if isinstance(p, v.Text)]


def parts(request: v.Request) -> Iterator[v.Part]:
    for message in request.messages:
        for part in message.parts:
            yield part
            yield from part.parts if isinstance(part, v.ToolResult) else ()


def calls(request: v.Request) -> list[tuple[str, str]]:
    return [(p.id, p.name) for m in request.messages for p in m.parts if isinstance(p, v.ToolCall)]


def results(request: v.Request) -> list[str]:
    return [p.call_id for m in request.messages for p in m.parts if isinstance(p, v.ToolResult)]
