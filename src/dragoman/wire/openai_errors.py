"""Errors and authentication of OpenAI's APIs: one body and one table of codes for all of them.

    {"error": {"message": "…", "type": "invalid_request_error", "param": "model", "code": null}}

Source: https://developers.openai.com/api/docs/guides/error-codes (2026-11).
"""

from typing import Final

import msgspec

from dragoman.core.errors import (
    AuthError,
    BackendUnavailableError,
    BudgetExceededError,
    ContextOverflowError,
    DragomanError,
    ForbiddenError,
    NotAskedError,
    QueueFullError,
    RateLimitError,
    RequestError,
    RequestTooLargeError,
    UnknownModelError,
    UnknownResponseError,
    UnsupportedError,
    UpstreamError,
    UpstreamTimeoutError,
)

_NO_QUOTA: Final = "insufficient_quota"
"""Type and code of a used-up budget."""
_CODES: Final[dict[type[DragomanError], str]] = {
    ContextOverflowError: "context_length_exceeded",
    UnsupportedError: "unsupported_parameter",
    UnknownResponseError: "previous_response_not_found",
    UnknownModelError: "model_not_found",
    AuthError: "invalid_api_key",
    ForbiddenError: "forbidden",
    RequestTooLargeError: "request_too_large",
    QueueFullError: "rate_limit_exceeded",
    RateLimitError: "rate_limit_exceeded",
    BudgetExceededError: _NO_QUOTA,
    BackendUnavailableError: "server_overloaded",
    NotAskedError: "server_overloaded",
    UpstreamTimeoutError: "timeout",
}
_UPSTREAM: Final = {400: 400, 413: 413, 422: 400, 429: 429, 503: 503, 529: 503}
"""HTTP status for an upstream status; any other (such as a rejected API key of the gateway) becomes 502."""


def status(error: DragomanError) -> int:
    """Returns the HTTP status for an error that occurs before the response has begun."""
    if isinstance(error, UpstreamError) and error.status is not None:
        return _UPSTREAM.get(error.status, error.status_hint)
    return error.status_hint


def error_fields(error: DragomanError) -> dict[str, str | None]:
    """Returns the fields of an error; `param` is the field's path without `$.`."""
    message, number = error.message, status(error)
    if isinstance(error, ContextOverflowError):
        message = _context_overflow_message(error)
    kind = "server_error" if number >= 500 else "rate_limit_error" if number == 429 else "invalid_request_error"
    kind = _NO_QUOTA if isinstance(error, BudgetExceededError) else kind
    path = error.path.removeprefix("$").removeprefix(".") if isinstance(error, RequestError) else ""
    return {"message": message, "type": kind, "param": path or None, "code": _CODES.get(type(error))}


def _context_overflow_message(error: ContextOverflowError) -> str:
    """Returns the vendor's message: clients match its text to shorten the conversation or request fewer tokens."""
    limit = f"This model's maximum context length is {error.limit_tokens} tokens."
    if error.output_tokens:
        both, completion = error.input_tokens + error.output_tokens, f"{error.output_tokens} in the completion"
        requested = f"However, you requested {both} tokens ({error.input_tokens} in the messages, {completion})."
        return f"{limit} {requested} Please reduce the length of the messages or completion."
    if error.limit_tokens:
        resulted = f"However, your messages resulted in {error.input_tokens} tokens."
        return f"{limit} {resulted} Please reduce the length of the messages."
    return "Your messages exceed this model's maximum context length. Please reduce the length of the messages."


def auth_headers(key: str) -> dict[str, str]:
    """Returns the authentication header for a key; none if the key is empty."""
    return {"authorization": f"Bearer {key}"} if key else {}


def write_error(error: DragomanError) -> bytes:
    """Returns the body of an error response."""
    return msgspec.json.encode({"error": error_fields(error)})
