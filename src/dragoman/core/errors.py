"""Exception hierarchy: who must act, and the HTTP status for the client.

    DragomanError
    ├── ClientError                     the request or configuration; an unchanged retry will not help
    │   ├── RequestError                a field is wrong or missing                     400
    │   ├── UnknownResponseError        a referenced response is not stored             400
    │   ├── UnsupportedError            valid, but not supported by any backend here    400
    │   ├── ContextOverflowError        prompt and response exceed the context window   400
    │   ├── AuthError                   missing or unknown API key                      401
    │   ├── ForbiddenError              a Host, origin or key that is not allowed       403
    │   ├── NotFoundError               no such path                                    404
    │   ├── MethodNotAllowedError       the path requires another HTTP method           405
    │   ├── WebSocketUnsupportedError   another protocol was requested                  426
    │   ├── UnknownModelError           no backend serves this model                    404
    │   ├── RequestTooLargeError        body over the size limit                        413
    │   ├── ContentEncodingError        a body in an unsupported encoding               415
    │   ├── RateLimitError              the API key has used its limit of a minute      429
    │   ├── BudgetExceededError         the API key has used its budget                 429
    │   └── ConfigError                 the operator's settings
    ├── UsageError                      incorrect use of the library                    500
    │   └── EventOrderError             an event in an invalid position (core/events.py)
    └── RemoteError                     model, engine or upstream server; a retry may help
        ├── QueueFullError              the request queue is full                       429
        ├── UpstreamError               the upstream server responded with an error     502
        ├── BackendUnavailableError     the engine ended or failed to start             503
        └── UpstreamTimeoutError        no data within the time limit                   504

Messages contain what was expected, what was received, where, and what to do:
`expected string, got integer - at $.messages[0].content`. They never quote keys or tokens. Each dialect's
`write_error` converts an error to its API's own body. Any other exception is a bug in Dragoman.
"""

import difflib
from collections.abc import Iterable, Mapping


class DragomanError(Exception):
    """Base class of all errors that Dragoman reports."""

    status_hint = 500
    """HTTP status if the response has not begun yet."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        """Seconds after which a retry makes sense, if known."""


class ClientError(DragomanError):
    """The request or the configuration is wrong: change it."""

    status_hint = 400


class RequestError(ClientError):
    """A field is wrong or missing: `expected …, got … - at $.path`."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} - at {path}" if path else message)
        self.path = path
        """JSON path of the field, such as `$.messages[0].role`; empty for the whole body."""


class UnsupportedError(RequestError):
    """The request is valid but not supported by this backend or version."""


class UnknownResponseError(RequestError):
    """The request refers to a response that is not stored, or no longer: send the whole conversation."""


class ContextOverflowError(ClientError):
    """Prompt and response exceed the context window: shorten one of them, or use a model with a larger one.

    Clients of Anthropic's API match the text of the message to determine which of the two is too long.
    """

    def __init__(self, input_tokens: int = 0, limit_tokens: int = 0, output_tokens: int = 0) -> None:
        """Token counts that are not known are 0."""
        self.input_tokens = input_tokens
        self.limit_tokens = limit_tokens
        self.output_tokens = output_tokens
        """Requested tokens of the response, if the prompt alone would fit."""
        message = "prompt is too long for the model"
        if output_tokens:
            message = (
                f"input length and `max_tokens` exceed context limit: {input_tokens} + {output_tokens} > {limit_tokens}"
            )
        elif limit_tokens:
            message = f"prompt is too long: {input_tokens} tokens > {limit_tokens} maximum"
        super().__init__(message)


class AuthError(ClientError):
    """The API key is missing, wrong, expired or revoked: send one of the configured keys."""

    status_hint = 401


class ForbiddenError(ClientError):
    """The request came with a Host, from an origin or with an API key that is not allowed here."""

    status_hint = 403


class NotFoundError(ClientError):
    """The path does not exist."""

    status_hint = 404


class MethodNotAllowedError(ClientError):
    """The path does not support this HTTP method: use the one in the message."""

    status_hint = 405

    def __init__(self, path: str, method: str, allowed: Iterable[str]) -> None:
        self.allowed = tuple(allowed)
        super().__init__(f"{method} is not for {quote(path)}; send {self.allowed[0]}")


class WebSocketUnsupportedError(ClientError):
    """The client requested another protocol than HTTP: send a POST.

    Codex tries a WebSocket first; after 426 it continues with POST at once, after 404 it retries seven times.
    """

    status_hint = 426


class UnknownModelError(ClientError):
    """No backend serves this model: use one that the message lists."""

    status_hint = 404

    def __init__(self, model: str, known: Iterable[str], key: str = "") -> None:
        """
        Args:
            model: The requested name.
            known: The models that the client can request.
            key: The name of its API key, if that may not use all models.
        """
        limited = f", or the API key {key} may not use it" if key else ""
        super().__init__(f"unknown model {quote(model)}{limited}{one_of(model, sorted(known), 'available: ')}")
        self.model = model


class RequestTooLargeError(ClientError):
    """The body exceeds the size limit: send less, or raise `server.max_body_bytes`."""

    status_hint = 413


class ContentEncodingError(ClientError):
    """The body's content encoding is not supported: send it uncompressed, or in an encoding that the message lists."""

    status_hint = 415

    def __init__(self, message: str, accepted: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.accepted = tuple(accepted)


class ConfigError(ClientError):
    """A setting is wrong: correct the key that the message names."""


class RateLimitError(ClientError):
    """The API key has used what it may use in a minute, or at the same time: retry after `retry_after_s`."""

    status_hint = 429

    def __init__(self, message: str, *, retry_after_s: float | None = None, is_permanent: bool = False) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.is_permanent = is_permanent
        """Whether the same request is refused at any time."""


class BudgetExceededError(ClientError):
    """The budget of the API key is used up: wait until it is renewed, or raise it."""

    status_hint = 429


class UsageError(DragomanError):
    """The library was called incorrectly: correct the calling code."""


class RemoteError(DragomanError):
    """The model, engine or upstream server failed: a retry may help."""

    status_hint = 502


class QueueFullError(RemoteError):
    """All concurrency slots are in use and the queue is full: retry after `retry_after_s`."""

    status_hint = 429


class UpstreamError(RemoteError):
    """The upstream server responded with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.status = status
        """Its HTTP status, if it had one."""
        self.headers = dict(headers or {})
        """Headers of its response that are forwarded to the client."""

    @property
    def is_permanent(self) -> bool:
        """Whether a retry fails too: for example a wrong API key, model name or URL in the settings."""
        return self.status is not None and 300 <= self.status < 500 and self.status not in _RETRYABLE


_RETRYABLE = (408, 409, 425, 429)
"""4xx statuses for which a retry may succeed."""


class BackendUnavailableError(RemoteError):
    """The engine ended or failed to start; it is restarted where that can help."""

    status_hint = 503


class NotAskedError(BackendUnavailableError):
    """The server was not asked, because it failed several times just now; it may be back."""


class UpstreamTimeoutError(RemoteError):
    """No data arrived within the time limit."""

    status_hint = 504


def loggable_message(error: DragomanError) -> str:
    """Returns the part of an error that is safe to log: no field values and no messages of upstream servers."""
    if isinstance(error, UpstreamError):
        return f"status {error.status}"
    if isinstance(error, RequestError) and error.path not in ("", "$"):
        return f"at {error.path}"
    return error.message


def failure_reason(error: BaseException) -> str:
    """Returns class and message of an error for the log, `UpstreamError: status 503`.

    Of an invalid field only the path is logged: its value belongs to the client.
    """
    message = loggable_message(error) if isinstance(error, DragomanError) else ""
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def quote(value: str, limit_chars: int = 80) -> str:
    """Returns the value in quotes; a long value is cut in the middle, with its length."""
    if len(value) <= limit_chars:
        return repr(value)
    half = limit_chars // 2
    return f"{value[:half]!r}…{value[-half:]!r} ({len(value)} characters)"


def cut(text: str, limit_chars: int = 200) -> str:
    """Returns the text, cut to `limit_chars` with its length appended if it is longer."""
    return text if len(text) <= limit_chars else f"{text[:limit_chars]}… ({len(text)} characters)"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?`, or "" if no known name is similar."""
    match = closest(name, known)
    return f"; did you mean {match!r}?" if match else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns the most similar known name, or "" if none is similar."""
    if len(name) > _MAX_COMPARED_CHARS:
        return ""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else ""


_MAX_COMPARED_CHARS = 100
"""Maximum characters of a name to compare; the comparison is quadratic, and longer names are not typing errors."""


def one_of(name: str, known: Iterable[str], lead: str) -> str:
    """Returns `; did you mean 'x'? expected 'x', 'y'`: the most similar name if there is one, then all after `lead`."""
    names = list(known)
    hint = nearest(name, names)
    if hint and len(names) == 1:
        return hint
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{hint or ';'} {lead}{', '.join(map(quote, names[:_MAX_LISTED])) or 'none'}{more}"


_MAX_LISTED = 40
"""Maximum names in a message."""
