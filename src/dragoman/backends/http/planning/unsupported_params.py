"""Removes a parameter that a server rejects by name, from requests that came by another API.

    Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.
    Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.
    Unrecognized request argument supplied: reasoning_effort
    Encrypted content is not supported with this model.
    property 'top_k' is unsupported
    [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]
    `temperature` is deprecated for this model.
    `temperature` and `top_p` cannot both be specified for this model.
    adaptive thinking is not supported on this model
    This model does not support the effort parameter.
    "granite4:3b" does not support thinking

No API reports which parameters a model supports, and two models of one vendor differ. So the request is sent as it is,
and again without what was rejected; `UnsupportedParams` remembers that for a while. A client that speaks the server's
own API gets the server's error instead.

Source: error texts of OpenAI (https://github.com/microsoft/vscode/issues/253673,
https://github.com/microsoft/agent-framework/issues/7483), Groq, and servers built with pydantic, such as Mistral's,
2026-11.
"""

import re
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dragoman.core.events import Notice
from dragoman.wire.dialect import UpstreamRequest

_REJECTION_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"unsupported (?:parameter|value): '(?P<name>\w+)",
        r"unrecognized request argument supplied: (?P<name>\w+)",
        r"property '(?P<name>\w+)' is unsupported",
        r'"loc": ?\["body", ?"(?P<name>\w+)"\], ?"msg": ?"extra inputs are not permitted',
        r"loc.{1,4}[\[(].body., ?.(?P<name>reasoning_effort)",
        r"`(?P<name>\w+)` is deprecated for this model",
        r"`temperature` and `(?P<name>top_p)` cannot both be specified",
        r"encrypted content is not supported(?P<name>)",
    )
)
_EFFORT_REJECTION: Final = re.compile(
    r"adaptive thinking is not supported|does not support (?:the effort parameter|thinking)"
    r"|think value .{0,20} is not supported|invalid reasoning value",
    re.IGNORECASE,
)
_EFFORT_FIELDS: Final = ("reasoning_effort", "reasoning", "thinking")
"""The fields for reasoning effort of each API; Anthropic's has it in `output_config` too."""
_INCLUDE: Final = "include"
"""The field that the last pattern is about; the error does not name it."""
_OPTIONAL_PARAMS: Final = frozenset(
    (
        *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
        *("reasoning_effort", "reasoning", _INCLUDE, "parallel_tool_calls", "stream_options"),
    )
)
"""Parameters without which the response still answers the request."""
_RENAMED: Final = {"max_tokens": "max_completion_tokens"}
_VALUE_REJECTION: Final = re.compile(r"unsupported value|think value|invalid reasoning value", re.IGNORECASE)
"""Errors after which another value of the same parameter may be accepted."""
REJECTION_TTL_S: Final = 600.0
"""Long enough for a conversation, short enough for a model that was replaced."""
_MAX_REJECTIONS: Final = 256


class _Rejection(NamedTuple):
    """What was rejected, and until when that is assumed to hold."""

    until_s: float
    items: frozenset[tuple[str, bytes]]
    """The rejected parameters with their values, if the value was rejected; else empty."""


class UnsupportedParams:
    """The parameters that the models of one server have recently rejected."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._known: dict[tuple[str, str], _Rejection] = {}
        """By model and error text, the oldest first."""

    def remember(self, model: str, error_text: str, rejected: UpstreamRequest, changed: UpstreamRequest | None) -> None:
        """Remembers that the model rejected a request with this error.

        Args:
            model: The model.
            error_text: The server's message.
            rejected: The rejected request.
            changed: The request without the rejected parameters; None: nothing is remembered.
        """
        if changed is not None:
            items = _items(rejected) - _items(changed) if _VALUE_REJECTION.search(error_text) else frozenset()
            self._known.pop((model, error_text), None)
            self._known[model, error_text] = _Rejection(self._now_s() + REJECTION_TTL_S, items)
            if len(self._known) > _MAX_REJECTIONS:
                del self._known[next(iter(self._known))]

    def apply_known(self, model: str, outgoing: UpstreamRequest) -> UpstreamRequest:
        """Returns the request without what the model has rejected."""
        if not self._known:
            return outgoing
        now_s = self._now_s()
        for (refuser, error_text), refusal in self._known.items():
            if refuser == model and refusal.until_s > now_s and refusal.items <= _items(outgoing):
                outgoing = remove_rejected_param(outgoing, error_text) or outgoing
        return outgoing


def _items(outgoing: UpstreamRequest) -> frozenset[tuple[str, bytes]]:
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    return frozenset((name, bytes(raw)) for name, raw in body.items())


def remove_rejected_param(outgoing: UpstreamRequest, error_text: str) -> UpstreamRequest | None:
    """Returns the request without the parameter that the error text names; None if it must not be removed."""
    if _EFFORT_REJECTION.search(error_text):
        return _without_effort(outgoing)
    match = next((m for pattern in _REJECTION_PATTERNS if (m := pattern.search(error_text))), None)
    if match is None:
        return None
    name = match["name"] or _INCLUDE
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    renamed = _RENAMED.get(name)
    if name not in body or not (name in _OPTIONAL_PARAMS or (renamed and renamed in error_text)):
        return None
    value = body.pop(name)
    if renamed:
        return outgoing._replace(body=msgspec.json.encode({**body, renamed: value}))
    warning = Notice("content_dropped", f"the server does not accept {name} with this model", detail=name)
    return outgoing._replace(body=msgspec.json.encode(body), warnings=(*outgoing.warnings, warning))


def _without_effort(outgoing: UpstreamRequest) -> UpstreamRequest | None:
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    remaining = {name: raw for name, raw in body.items() if name not in _EFFORT_FIELDS}
    if "output_config" in body:
        config = msgspec.json.decode(body["output_config"], type=dict[str, msgspec.Raw])
        remaining["output_config"] = msgspec.Raw(
            msgspec.json.encode({n: raw for n, raw in config.items() if n != "effort"})
        )
        if bytes(remaining["output_config"]) == b"{}":
            del remaining["output_config"]
    if remaining == body:
        return None
    warning = Notice(
        "content_dropped", "the server does not accept a reasoning effort with this model", detail="effort"
    )
    return outgoing._replace(body=msgspec.json.encode(remaining), warnings=(*outgoing.warnings, warning))
