"""How OpenAI's APIs tell an error, and who asks: one body and one table of codes for all of them.

    {"error": {"message": "…", "type": "invalid_request_error", "param": "model", "code": null}}

Source: https://developers.openai.com/api/docs/guides/error-codes (2026-11).
"""

from typing import Final

import msgspec

from dragoman.core.errors import (
    AuthError,
    BackendError,
    BusyError,
    ContextOverflowError,
    DragomanError,
    ForbiddenError,
    RequestError,
    SilenceError,
    TooLargeError,
    UnknownModelError,
    UnknownReplyError,
    UnsupportedError,
    UpstreamError,
)

_CODES: Final[dict[type[DragomanError], str]] = {
    ContextOverflowError: "context_length_exceeded",
    UnsupportedError: "unsupported_parameter",
    UnknownReplyError: "previous_response_not_found",
    UnknownModelError: "model_not_found",
    AuthError: "invalid_api_key",
    ForbiddenError: "forbidden",
    TooLargeError: "request_too_large",
    BusyError: "rate_limit_exceeded",
    BackendError: "server_overloaded",
    SilenceError: "timeout",
}
_UPSTREAM: Final = {400: 400, 413: 413, 422: 400, 429: 429, 503: 503, 529: 503}
"""What an upstream's own status becomes; any other (a key of ours that it refuses, say) is 502."""


def status(error: DragomanError) -> int:
    """The HTTP status for an error that comes before the answer has begun."""
    if isinstance(error, UpstreamError) and error.status is not None:
        return _UPSTREAM.get(error.status, error.status_hint)
    return error.status_hint


def error_fields(error: DragomanError) -> dict[str, str | None]:
    """What there is to say of an error; `param` is the field's path without `$.`."""
    message, number = error.message, status(error)
    if isinstance(error, ContextOverflowError):  # clients look for these words and shorten the conversation
        message = (
            f"This model's maximum context length is {error.limit_tokens} tokens. However, your messages resulted "
            f"in {error.input_tokens} tokens. Please reduce the length of the messages."
        )
    kind = "server_error" if number >= 500 else "rate_limit_error" if number == 429 else "invalid_request_error"
    path = error.path.removeprefix("$").removeprefix(".") if isinstance(error, RequestError) else ""
    return {"message": message, "type": kind, "param": path or None, "code": _CODES.get(type(error))}


def sign(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"authorization": f"Bearer {key}"} if key else {}


def write_error(error: DragomanError) -> bytes:
    """The body of an error."""
    return msgspec.json.encode({"error": error_fields(error)})
