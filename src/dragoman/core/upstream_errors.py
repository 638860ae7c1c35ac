"""What a server behind says when it refuses, as our errors.

    {"error": {"message": "…", "type": "…", "code": 429}}        {"type": "error", "error": {…}}
    {"error": "…"}        {"object": "error", "message": "…"}        {"detail": "…"}

That a conversation is too long is told in many words; clients shorten it only where they read those of their own API.

Source: https://developers.openai.com/api/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors (2026-11);
the words of llama.cpp (tools/server, `exceed_context_size_error`), vLLM (`maximum context length`), LM Studio, 2026-11.
"""

import re
from typing import Final

from dragoman.core import shape
from dragoman.core.errors import ContextOverflowError, DragomanError, RequestError, UpstreamError
from dragoman.core.shape import Cursor, Fields

_OVERFLOW: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"prompt is too long: (?P<got>\d+) tokens > (?P<limit>\d+)",
        r"maximum context length is (?P<limit>\d+) tokens\D{0,80}(?P<got>\d+)",
        r"request \((?P<got>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)",
        r"first (?P<got>\d+) tokens when context the overflows.{0,120}?length of only (?P<limit>\d+)",
    )
)


def answered_error(status: int, body: bytes, retry_after: str = "") -> DragomanError:
    """The error of an answer that is none: of this HTTP status, with this body and header."""
    wait_s = float(retry_after) if retry_after.isdecimal() else None
    try:
        error = said_error(shape.at(body).fields())
    except RequestError:
        error = None
    if isinstance(error, ContextOverflowError):
        return error
    told = error.message if error is not None else _plain(body) or "no reason given"
    return UpstreamError(f"the server answered {status}: {told}", status=status, retry_after_s=wait_s)


def _plain(body: bytes) -> str:
    """The words of a page of HTML, or of plain text."""
    text = re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", " ", body.decode("utf-8", "replace"), flags=re.DOTALL)
    return " ".join(text.split())[:200]


def said_error(fields: Fields) -> DragomanError | None:
    """The error that a body or an event tells of, in any of the shapes that servers have for it."""
    found = fields.take("error")
    if found is not None:
        return _error(found)
    kind = fields.peek("object")
    if kind is not None and kind.kind == "string" and kind.string() == "error":
        return told_error(fields)
    alone = fields.peek("detail")
    return _error(alone) if alone is not None and fields.peek("choices") is None else None


def told_error(fields: Fields) -> DragomanError:
    """The error whose `message`, and `code` or `type`, these are."""
    message, code = fields.take("message"), fields.take("code")
    named = _STATUS.get(_word(fields.take("type"))) or _STATUS.get(_word(code))
    status = code.integer() if code is not None and code.kind == "number" else named
    said = message.string() if message is not None and message.kind == "string" else bytes(fields.raw).decode()[:200]
    return overflow(said) or UpstreamError(said, status=status)


def _error(found: Cursor) -> DragomanError:
    if found.kind == "object":
        return told_error(found.fields())
    told = found.string() if found.kind == "string" else found.text[:200]
    return overflow(told) or UpstreamError(told)


def overflow(message: str) -> ContextOverflowError | None:
    """The error for a conversation that is too long, where this says so."""
    found = next((m for pattern in _OVERFLOW if (m := pattern.search(message))), None)
    return ContextOverflowError(int(found["got"]), int(found["limit"])) if found else None


def _word(found: Cursor | None) -> str:
    return found.string() if found is not None and found.kind == "string" else ""


_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    "rate_limit_exceeded": 429,
    "invalid_prompt": 400,
}
"""Where only a word for the error is told, as in the middle of a stream (both vendors' pages of errors, 2026-11)."""
