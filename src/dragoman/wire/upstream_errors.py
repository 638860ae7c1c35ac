"""What a server behind says when it refuses, as our errors.

    {"error": {"message": "…", "type": "…", "code": 429}}        {"type": "error", "error": {…}}
    {"error": "…"}        {"object": "error", "message": "…"}        {"detail": "…"}

That a conversation is too long is told in many words; clients shorten it only where they read those of their own API.
Some are about the prompt and the reply that was asked for together: then it is the reply that clients shorten.

Source: https://developers.openai.com/api/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors (2026-11);
the words of llama.cpp (tools/server, `exceed_context_size_error`), vLLM (vllm/renderers/params.py), SGLang and
Together (https://github.com/openclaw/openclaw/issues/129352), Ollama (https://github.com/openclaw/openclaw/pull/36074),
LM Studio, xAI, Mistral, Gemini and others (https://github.com/earendil-works/pi/pull/5929, its issues 4943 and 5677),
LM Studio's newer ones (https://github.com/anomalyco/opencode/issues/11141), OpenRouter
(https://github.com/boldsoftware/shelley/issues/159), Text Generation Inference
(https://github.com/huggingface/chat-ui/issues/340), oMLX (https://github.com/ValueCell-ai/ClawX/issues/658), mlx-serve
(https://github.com/ddalcu/mlx-serve/issues/66), 2026-11.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from dragoman.core.errors import ContextOverflowError, DragomanError, RequestError, UpstreamError
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.upstream_headers import of_error

_LIMIT: Final = r"maximum context length is (?P<limit>\d+) tokens"
_OVERFLOW: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"prompt is too long: (?P<input>\d+) tokens > (?P<limit>\d+)",
        r"prompt too long: (?P<input>\d+) tokens exceeds max context window of (?P<limit>\d+)",
        r"maximum context length is \d+ tokens.{0,40}contains \d+ characters",
        r"exceed context limit: (?P<input>\d+) \+ (?P<output>\d+) > (?P<limit>\d+)",
        rf"is too large: (?P<output>\d+)\..{{0,20}}{_LIMIT} and your request has (?P<input>\d+)",
        rf"{_LIMIT}.{{0,30}}requested (?P<output>\d+) output tokens.{{0,40}}?(?P<input>\d+) input tokens",
        rf"{_LIMIT}.{{0,40}}\((?P<input>\d+) .{{0,60}}?(?P<output>\d+) (in|for) the completion",
        rf"{_LIMIT}.{{0,40}}about (?P<total>\d+) tokens \(.{{0,80}}?(?P<output>\d+) in the output",
        r"must be <= (?P<limit>\d+)\. Given: (?P<input>\d+) `inputs` tokens and (?P<output>\d+)",
        r"must have less than (?P<limit>\d+) tokens\. Given: (?P<input>\d+)",
        r"maximum context length of (?P<limit>\d+) tokens.{0,60}?: (?P<input>\d+) tokens.{0,40}? and (?P<output>\d+)",
        rf"{_LIMIT}\D{{0,80}}(?P<input>\d+)",
        r"request \((?P<input>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)",
        r"n_keep:? ?\(?(?P<input>\d+)\)? ?>= ?n_ctx:? ?\(?(?P<limit>\d+)",
        r"first (?P<input>\d+) tokens when context the overflows.{0,120}?length of only (?P<limit>\d+)",
        r"input \((?P<input>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+)",
        r"prompt \(length (?P<input>\d+)\) is longer than the maximum model length of (?P<limit>\d+)",
        r"maximum prompt length is (?P<limit>\d+) but the request contains (?P<input>\d+)",
        r"token count \(?(?P<input>\d+)\)? exceeds the maximum number of tokens allowed \(?(?P<limit>\d+)",
        r"prompt contains (?P<input>\d+) tokens.{0,40}too large for model with (?P<limit>\d+)",
        r"input length \(?(?P<input>\d+)\)? exceeds .{0,12}maximum .{0,24}?length(?: of)? \(?(?P<limit>\d+)",
        r"context[_ ]length[_ ]exceeded|exceed_context_size_error|exceeds the (context window|available context size)"
        r"|exceeded max context length|input length exceeds .{0,12}context length"
        r"|input is too long for requested model|prompt exceeds maximum context length",
    )
)


def answered_error(
    status: int,
    body: bytes,
    retry_after_s: float | None = None,
    headers: Mapping[str, str] | None = None,
    setting: str = "",
) -> DragomanError:
    """Returns the error of a response with this status, body and headers, and the time after which it may be retried.

    `setting` is the name of the one that holds the server's URL, for redirects.
    """
    try:
        found = json_cursor.at(body)
        fields = (found.items()[0] if found.kind == "array" and found.items() else found).fields()
        error = said_error(fields) or (told_error(fields) if fields.peek("message") is not None else None)
    except RequestError:
        error = overflow(_plain(body))
    if isinstance(error, ContextOverflowError):
        return error
    told = error.message if error is not None else _plain(body) or "no reason given"
    if 300 <= status < 400 and (moved := _VISIBLE.match((headers or {}).get("location", ""))):
        where = _without_password(moved[0])
        told = f"it has moved to {where}; redirects are not followed, so set {setting} to the new URL"
    passed = of_error(headers or {})
    return UpstreamError(
        f"the server answered {status}: {told}", status=status, retry_after_s=retry_after_s, headers=passed
    )


_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,300}")


def _without_password(url: str) -> str:
    """The URL without user and password, and without its query, in which keys may stand."""
    return re.sub(r"(?<=://)[^/@]*@", "", url.partition("?")[0])


def _plain(body: bytes) -> str:
    """The words of a page of HTML, or of plain text."""
    text = _TAG.sub(" ", "".join(_shown(body.decode("utf-8", "replace"))))
    return " ".join(text.split())[:200]


def _shown(page: str) -> Iterator[str]:
    """What is neither style nor script, in time that grows with the page."""
    at = 0
    while found := _HIDDEN.search(page, at):
        yield page[at : found.start()] + " "
        end = page.find(f"</{found[1]}", found.end())
        at = end if end >= 0 else len(page)
    yield page[at:]


_TAG: Final = re.compile(r"<[^<>]*>")
_HIDDEN: Final = re.compile(r"<(style|script)\b")
_DIGITS: Final = 18
"""Of a number of tokens; what has more is none."""


_ERROR: Final = msgspec.Raw(b'"error"')
_NO_ERROR: Final = ('""', "{}", "[]", "false")
"""What servers write in the place of an error where there is none."""


def said_error(fields: Fields) -> DragomanError | None:
    """The error that a body or an event tells of, in any of the shapes that servers have for it."""
    found = fields.take("error")
    if found is not None and found.text not in _NO_ERROR:
        return _error(found)
    if _is_bare(fields):
        return told_error(fields)
    kind = fields.peek("object")
    if kind is not None and kind.raw == _ERROR:
        return told_error(fields)
    alone = fields.peek("detail")
    return _error(alone) if alone is not None and fields.peek("choices") is None else None


def _is_bare(fields: Fields) -> bool:
    """Whether these are the members of an error that stands in no member of its own."""
    message, code = fields.peek("message"), fields.peek("code")
    return message is not None and message.kind == "string" and code is not None and fields.peek("choices") is None


def told_error(fields: Fields) -> DragomanError:
    """The error whose `message`, and `code` or `type`, these are."""
    message, code = fields.take("message"), fields.take("code")
    kinds = (_word(fields.take("type")), _word(code))
    named = next((_STATUS[kind] for kind in kinds if kind in _STATUS), None)
    status = code.integer() if code is not None and code.kind == "number" else named
    said = message.string() if message is not None and message.kind == "string" else bytes(fields.raw).decode()[:200]
    return overflow(said) or overflow(" ".join(kinds)) or UpstreamError(said, status=status)


def _error(found: Cursor) -> DragomanError:
    if found.kind == "object":
        return told_error(found.fields())
    told = found.string() if found.kind == "string" else found.text[:200]
    return overflow(told) or UpstreamError(told)


def overflow(message: str) -> ContextOverflowError | None:
    """The error for a conversation that is too long, where this says so."""
    found = next((m for pattern in _OVERFLOW if (m := pattern.search(message))), None)
    if found is None:
        return None
    told = {name: int(count) for name, count in found.groupdict().items() if len(count) <= _DIGITS}
    limit, output = told.get("limit", 0), told.get("output", 0)
    input = told.get("input", told.get("total", 0) - output)
    return ContextOverflowError(input, limit, output if input < limit else 0)


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
