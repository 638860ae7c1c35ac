"""The error tree: whose fault it is, and what to do.

    DragomanError
    ├── ClientError                 the request or configuration; sending it again unchanged will not help
    │   ├── RequestError            a field is wrong or missing                 400
    │   ├── UnknownResponseError       an earlier answer that is not kept          400
    │   ├── UnsupportedError        understood, but nobody here can do it       400
    │   ├── ContextOverflowError    prompt and reply do not fit the model       400
    │   ├── AuthError               no key, or not one of ours                  401
    │   ├── ForbiddenError          a Host or origin that is not ours           403
    │   ├── NotFoundError           no such path                                404
    │   ├── MethodNotAllowedError             the path takes another method               405
    │   ├── WebSocketUnsupportedError            another protocol was asked for              426
    │   ├── UnknownModelError       no backend offers that model                404
    │   ├── RequestTooLargeError           body over the limit                         413
    │   ├── ContentEncodingError           a body in an unsupported encoding           415
    │   └── ConfigError             the operator's settings
    ├── UsageError                 the library was called in a way that it does not allow   500
    │   └── EventOrderError              an event where the stream has no place for it (core/events.py)
    └── RemoteError                 model, engine or server behind; trying again may help
        ├── QueueFullError               no place in the queue                       429
        ├── UpstreamError           answered with an error of its own           502
        ├── BackendUnavailableError            died, or never came up                      503
        └── UpstreamTimeoutError            said nothing for too long                   504

Messages say what was expected, what was there, where, and what to do:
`expected string, got integer - at $.messages[0].content`. They never quote keys or tokens. Each dialect's
`write_error` turns an error into that API's own body. An exception that is none of these is a bug here.
"""

import difflib
from collections.abc import Iterable, Mapping


class DragomanError(Exception):
    """Anything that Dragoman itself says went wrong."""

    status_hint = 500
    """HTTP status for a caller that has not been answered yet."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        """Seconds after which trying again makes sense, where that is known."""


class ClientError(DragomanError):
    """The request or the configuration is at fault: change it."""

    status_hint = 400


class RequestError(ClientError):
    """A field is wrong or missing: `expected …, got … - at $.path`."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} - at {path}" if path else message)
        self.path = path
        """JSON path of the field, `$.messages[0].role`; empty where the whole body is meant."""


class UnsupportedError(RequestError):
    """A legal request that this backend or version cannot carry out."""


class UnknownResponseError(RequestError):
    """An earlier answer is named that is not kept, or no longer: send the whole conversation."""


class ContextOverflowError(ClientError):
    """Prompt and reply do not fit the model: shorten the conversation or the reply, or take a larger model.

    The words are those by which clients of Anthropic's API tell which of the two it is.
    """

    def __init__(self, input_tokens: int = 0, limit_tokens: int = 0, output_tokens: int = 0) -> None:
        """Of each, 0 where it was not told."""
        self.input_tokens = input_tokens
        self.limit_tokens = limit_tokens
        self.output_tokens = output_tokens
        """As many were asked for, where the prompt alone would fit."""
        told = "prompt is too long for the model"
        if output_tokens:
            told = (
                f"input length and `max_tokens` exceed context limit: {input_tokens} + {output_tokens} > {limit_tokens}"
            )
        elif limit_tokens:
            told = f"prompt is too long: {input_tokens} tokens > {limit_tokens} maximum"
        super().__init__(told)


class AuthError(ClientError):
    """The key is missing or wrong: send one of the configured keys."""

    status_hint = 401


class ForbiddenError(ClientError):
    """The request came under a name or from a place that is not allowed."""

    status_hint = 403


class NotFoundError(ClientError):
    """There is nothing at that path."""

    status_hint = 404


class MethodNotAllowedError(ClientError):
    """The path takes another method: send that."""

    status_hint = 405

    def __init__(self, path: str, got: str, allowed: Iterable[str]) -> None:
        self.allowed = tuple(allowed)
        super().__init__(f"{got} is not for {quote(path)}; send {self.allowed[0]}")


class WebSocketUnsupportedError(ClientError):
    """Another protocol than HTTP was asked for: send a POST.

    Codex looks for a WebSocket first; told 426 it goes on by POST at once, told 404 it tries seven times.
    """

    status_hint = 426


class UnknownModelError(ClientError):
    """No backend offers that model: take one of those named."""

    status_hint = 404

    def __init__(self, model: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown model {quote(model)}{one_of(model, sorted(known), 'available: ')}")
        self.model = model


class RequestTooLargeError(ClientError):
    """The body is over the limit: send less, or raise `server.body_bytes`."""

    status_hint = 413


class ContentEncodingError(ClientError):
    """The body has an encoding that is not supported: send it as it is, or in one of those named."""

    status_hint = 415

    def __init__(self, message: str, accepted: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.accepted = tuple(accepted)


class ConfigError(ClientError):
    """The settings are wrong: mend the named key."""


class UsageError(DragomanError):
    """The library was called in a way that it does not allow: mend the code that calls it."""


class RemoteError(DragomanError):
    """The model, engine or server behind is at fault: trying again may help."""

    status_hint = 502


class QueueFullError(RemoteError):
    """All places are taken and the queue is full: try again after `retry_after_s`."""

    status_hint = 429


class UpstreamError(RemoteError):
    """What stands behind answered with an error of its own."""

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
        """Its HTTP status, where it had one."""
        self.headers = dict(headers or {})
        """Of its response, what goes on to the client."""

    @property
    def is_permanent(self) -> bool:
        """The same request will fail again: the key, the model's name or the URL in the settings is wrong, say."""
        return self.status is not None and 300 <= self.status < 500 and self.status not in _PASSING


_PASSING = (408, 409, 425, 429)
"""Statuses of the 400s that another try may mend."""


class BackendUnavailableError(RemoteError):
    """The engine ended, or could not be started; it is being restarted where that can help."""

    status_hint = 503


class UpstreamTimeoutError(RemoteError):
    """Nothing came for longer than the limit."""

    status_hint = 504


def logged(error: DragomanError) -> str:
    """What of an error may stand in a log: neither what a field held nor a server's words, which may repeat that."""
    if isinstance(error, UpstreamError):
        return f"status {error.status}"
    if isinstance(error, RequestError) and error.path not in ("", "$"):
        return f"at {error.path}"
    return error.message


def quote(value: str, limit_chars: int = 80) -> str:
    """The value in quotes, its middle cut out and its length told where it is long."""
    if len(value) <= limit_chars:
        return repr(value)
    half = limit_chars // 2
    return f"{value[:half]!r}…{value[-half:]!r} ({len(value)} characters)"


def cut(text: str, limit_chars: int = 200) -> str:
    """Returns the text, cut and with its length where it is longer than `limit_chars`."""
    return text if len(text) <= limit_chars else f"{text[:limit_chars]}… ({len(text)} characters)"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no known name is close."""
    if len(name) > _LONGEST_TO_COMPARE:
        return ""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


_LONGEST_TO_COMPARE = 100
"""Characters of a name; comparing is quadratic, and what is longer is no slip of the pen."""


def one_of(name: str, known: Iterable[str], lead: str) -> str:
    """`; did you mean 'x'? expected 'x', 'y'`: the nearest, where one is close, and all there are after `lead`."""
    names = list(known)
    hint = nearest(name, names)
    if hint and len(names) == 1:
        return hint
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{hint or ';'} {lead}{', '.join(map(quote, names[:_LISTED])) or 'none'}{more}"


_LISTED = 40
"""Names that a message lists."""
