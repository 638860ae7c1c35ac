"""Converts error responses of upstream servers to Dragoman's errors.

    {"error": {"message": "…", "type": "…", "code": 429}}        {"type": "error", "error": {…}}
    {"error": "…"}        {"object": "error", "message": "…"}        {"detail": "…"}

Servers word a context overflow in many ways; clients shorten the conversation only if they see the message of their own
API. Some messages are about the sum of prompt and requested completion; then clients reduce the completion.

Source: https://developers.openai.com/api/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors (2026-11);
messages of llama.cpp (tools/server, `exceed_context_size_error`), vLLM (vllm/renderers/params.py), SGLang and
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
from dragoman.wire.response_headers import client_error_headers

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


def error_from_response(
    status: int,
    body: bytes,
    retry_after_s: float | None = None,
    headers: Mapping[str, str] | None = None,
    setting: str = "",
) -> DragomanError:
    """Returns the error for an HTTP error response.

    Args:
        status: HTTP status.
        body: Response body in any format.
        retry_after_s: Seconds after which the request may be retried, if the server reports it.
        headers: Response headers, names in lower case.
        setting: Name of the setting that contains the server's URL, for the message about a redirect.
    """
    try:
        parsed = json_cursor.parse(body)
        fields = (parsed.items()[0] if parsed.kind == "array" and parsed.items() else parsed).fields()
        error = error_from_event(fields) or (error_from_body(fields) if fields.get("message") is not None else None)
    except RequestError:
        error = context_overflow(_page_text(body))
    if isinstance(error, ContextOverflowError):
        return error
    message = error.message if error is not None else _page_text(body) or "no reason given"
    if 300 <= status < 400 and (moved := _VISIBLE_URL.match((headers or {}).get("location", ""))):
        where = _without_password(moved[0])
        message = f"it has moved to {where}; redirects are not followed, so set {setting} to the new URL"
    passed = client_error_headers(headers or {})
    return UpstreamError(
        f"the server answered {status}: {message}", status=status, retry_after_s=retry_after_s, headers=passed
    )


_VISIBLE_URL: Final = re.compile(r"[\x21-\x7e]{1,300}")


def _without_password(url: str) -> str:
    """Returns the URL without user, password and query, which may contain keys."""
    return re.sub(r"(?<=://)[^/@]*@", "", url.partition("?")[0])


def _page_text(body: bytes) -> str:
    """Returns the text of an HTML page or plain text, at most 200 characters."""
    text = _TAG.sub(" ", "".join(_without_style_and_script(body.decode("utf-8", "replace"))))
    return " ".join(text.split())[:200]


def _without_style_and_script(page: str) -> Iterator[str]:
    """Yields the page without style and script, in time linear in its length."""
    at = 0
    while match := _HIDDEN.search(page, at):
        yield page[at : match.start()] + " "
        end = page.find(f"</{match[1]}", match.end())
        at = end if end >= 0 else len(page)
    yield page[at:]


_TAG: Final = re.compile(r"<[^<>]*>")
_HIDDEN: Final = re.compile(r"<(style|script)\b")
_MAX_DIGITS: Final = 18
"""Maximum digits of a token count; longer numbers are ignored."""


_ERROR: Final = msgspec.Raw(b'"error"')
_NO_ERROR: Final = ('""', "{}", "[]", "false")
"""Values of an `error` field that mean "no error"."""


def error_from_event(fields: Fields) -> DragomanError | None:
    """Returns the error in a body or event, in any of the known forms; None if there is none."""
    value = fields.pop("error")
    if value is not None and value.text not in _NO_ERROR:
        return _error(value)
    if _is_top_level(fields):
        return error_from_body(fields)
    kind = fields.get("object")
    if kind is not None and kind.raw == _ERROR:
        return error_from_body(fields)
    detail = fields.get("detail")
    return _error(detail) if detail is not None and fields.get("choices") is None else None


def _is_top_level(fields: Fields) -> bool:
    """Whether the fields of an error are at the top level, not inside an `error` field."""
    message, code = fields.get("message"), fields.get("code")
    return message is not None and message.kind == "string" and code is not None and fields.get("choices") is None


def error_from_body(fields: Fields) -> DragomanError:
    """Returns the error with this `message`, and `code` or `type`."""
    message, code = fields.pop("message"), fields.pop("code")
    kinds = (_word(fields.pop("type")), _word(code))
    named = next((_STATUS[kind] for kind in kinds if kind in _STATUS), None)
    status = code.integer() if code is not None and code.kind == "number" else named
    reported = (
        message.string() if message is not None and message.kind == "string" else bytes(fields.raw).decode()[:200]
    )
    return context_overflow(reported) or context_overflow(" ".join(kinds)) or UpstreamError(reported, status=status)


def _error(value: Cursor) -> DragomanError:
    if value.kind == "object":
        return error_from_body(value.fields())
    message = value.string() if value.kind == "string" else value.text[:200]
    return context_overflow(message) or UpstreamError(message)


def context_overflow(message: str) -> ContextOverflowError | None:
    """Returns the error for a context overflow if the message reports one, else None."""
    match = next((m for pattern in _OVERFLOW if (m := pattern.search(message))), None)
    if match is None:
        return None
    counts = {name: int(count) for name, count in match.groupdict().items() if len(count) <= _MAX_DIGITS}
    limit, output = counts.get("limit", 0), counts.get("output", 0)
    input = counts.get("input", counts.get("total", 0) - output)
    return ContextOverflowError(input, limit, output if input < limit else 0)


def _word(value: Cursor | None) -> str:
    return value.string() if value is not None and value.kind == "string" else ""


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
"""HTTP status for error types without one, as in mid-stream (both vendors' error pages, 2026-11)."""
