"""A setting that a server refuses by name, taken out of a request that has it only because it came by another API.

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

Which settings a model takes no API tells, and two models of one vendor differ: so it is asked, and once more without
what it refuses; for a while that is remembered (`Refusals`). Whoever speaks the server's own API is told of its refusal
instead.

Source: the words of OpenAI (https://github.com/microsoft/vscode/issues/253673,
https://github.com/microsoft/agent-framework/issues/7483), Groq, and servers made with pydantic, such as
Mistral's, 2026-11.
"""

import re
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dragoman.core.events import Notice
from dragoman.wire.dialect import UpstreamRequest

_REFUSED: Final = tuple(
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
_NO_EFFORT: Final = re.compile(
    r"adaptive thinking is not supported|does not support (?:the effort parameter|thinking)"
    r"|think value .{0,20} is not supported|invalid reasoning value",
    re.IGNORECASE,
)
_EFFORT: Final = ("reasoning_effort", "reasoning", "thinking")
"""How long to think has another name in each API, and in Anthropic's a place in `output_config` too."""
_INCLUDE: Final = "include"
"""What the last of these is about, without naming it."""
_MAY_GO: Final = frozenset(
    (
        *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
        *("reasoning_effort", "reasoning", _INCLUDE, "parallel_tool_calls", "stream_options"),
    )
)
"""Without which the answer is still one to what was asked."""
_RENAMED: Final = {"max_tokens": "max_completion_tokens"}
_ONE_VALUE: Final = re.compile(r"unsupported value|think value|invalid reasoning value", re.IGNORECASE)
"""Another value of the same setting may be taken."""
REMEMBERED_S: Final = 600.0
"""Long enough to be of use in a conversation, short enough for a model that was exchanged."""
_REMEMBERED_AT_MOST: Final = 256


class _Refusal(NamedTuple):
    """What was refused, and until when that is taken for granted."""

    until_s: float
    items: frozenset[tuple[str, bytes]]
    """The settings with their values, where it is about those; else empty."""


class Refusals:
    """What the models of a server refused lately."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._known: dict[tuple[str, str], _Refusal] = {}
        """By the model and the server's words, the oldest first."""

    def remember(self, model: str, words: str, asked: UpstreamRequest, amended: UpstreamRequest | None) -> None:
        """The model refused what was asked in these words, and may take what was amended, if there is such a thing."""
        if amended is not None:
            items = _items(asked) - _items(amended) if _ONE_VALUE.search(words) else frozenset()
            self._known.pop((model, words), None)
            self._known[model, words] = _Refusal(self._now_s() + REMEMBERED_S, items)
            if len(self._known) > _REMEMBERED_AT_MOST:
                del self._known[next(iter(self._known))]

    def heeded(self, model: str, outgoing: UpstreamRequest) -> UpstreamRequest:
        """The request without what the model refused."""
        now_s = self._now_s()
        for (refuser, words), refusal in self._known.items():
            if refuser == model and refusal.until_s > now_s and refusal.items <= _items(outgoing):
                outgoing = without(outgoing, words) or outgoing
        return outgoing


def _items(outgoing: UpstreamRequest) -> frozenset[tuple[str, bytes]]:
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    return frozenset((name, bytes(raw)) for name, raw in body.items())


def without(outgoing: UpstreamRequest, words: str) -> UpstreamRequest | None:
    """The request without the setting that the server refuses in these words; None where it may not go."""
    if _NO_EFFORT.search(words):
        return _without_effort(outgoing)
    found = next((m for pattern in _REFUSED if (m := pattern.search(words))), None)
    if found is None:
        return None
    name = found["name"] or _INCLUDE
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    renamed = _RENAMED.get(name)
    if name not in body or not (name in _MAY_GO or (renamed and renamed in words)):
        return None
    value = body.pop(name)
    if renamed:
        return outgoing._replace(body=msgspec.json.encode({**body, renamed: value}))
    told = Notice("content_dropped", f"the server does not take {name} with this model", detail=name)
    return outgoing._replace(body=msgspec.json.encode(body), warnings=(*outgoing.warnings, told))


def _without_effort(outgoing: UpstreamRequest) -> UpstreamRequest | None:
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    kept = {name: raw for name, raw in body.items() if name not in _EFFORT}
    if "output_config" in body:
        config = msgspec.json.decode(body["output_config"], type=dict[str, msgspec.Raw])
        kept["output_config"] = msgspec.Raw(msgspec.json.encode({n: raw for n, raw in config.items() if n != "effort"}))
        if bytes(kept["output_config"]) == b"{}":
            del kept["output_config"]
    if kept == body:
        return None
    told = Notice("content_dropped", "the server does not take an effort with this model", detail="effort")
    return outgoing._replace(body=msgspec.json.encode(kept), warnings=(*outgoing.warnings, told))
