"""Sampling settings of a request, in the engine's terms."""

from typing import Any, Final

import msgspec

from dragoman.core.errors import RequestError
from dragoman.core.messages import Request
from dragoman.text.json_cursor import Cursor
from dragoman.text.lenient_values import EMPTY_VALUES

_INT32: Final = 2**31 - 1
"""The engine's counts are 32 bits wide; a larger number would overflow."""
_UNSUPPORTED: Final = (
    "audio",
    "chat_template_kwargs",
    "container",
    "context_management",
    "logprobs",
    "mcp_servers",
    "modalities",
    "prediction",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "top_logprobs",
    "verbosity",
    "web_search_options",
)
"""Settings of the APIs that would change the reply but that the engine does not support."""
_EXTRA_SETTINGS: Final = (
    ("min_p", "min_p", 1),
    ("repeat_penalty", "repeat_penalty", 10),
    ("repetition_penalty", "repeat_penalty", 10),
)
"""Settings that servers of open models accept beyond the APIs: name, the engine's name, and maximum."""


def engine_settings(request: Request) -> dict[str, Any]:
    """Returns the client's sampling settings for the engine.

    Raises:
        RequestError: a setting that no dialect has parsed is invalid.
    """
    body = {k: v for k, v in msgspec.structs.asdict(request.sampling).items() if v is not None}
    if "top_k" in body:
        body["top_k"] = max(-1, min(body["top_k"], _INT32))
    for name, known_as, most in _EXTRA_SETTINGS:
        if value := _extra(request, name):
            body[known_as] = value.number(0, most)
    if value := _extra(request, "logit_bias"):
        body["logit_bias"] = _biases(value)
    return body


def ignored_settings(request: Request) -> list[str]:
    """Returns the names of settings that have a value and that the engine does not support."""
    unsupported = ((name, request.extra.get(name)) for name in _UNSUPPORTED)
    return [name for name, raw in unsupported if raw is not None and bytes(raw) not in EMPTY_VALUES]


def _extra(request: Request, name: str) -> Cursor | None:
    raw = request.extra.get(name)
    value = None if raw is None else Cursor(raw, f"$.{name}")
    return None if value is None or value.kind == "null" else value


def _biases(value: Cursor) -> list[tuple[int, float]]:
    """Returns `{"50256": -100}` as pairs of token id and bias."""
    fields = value.fields()
    names = msgspec.json.decode(value.raw, type=dict[str, msgspec.Raw])
    if wrong := next((n for n in names if not (n.isascii() and n.isdigit() and len(n) < 10)), None):
        raise RequestError(f"expected the numbers of tokens as names, got {wrong!r}", value.path)
    return [(int(name), fields.require(name).number(-100, 100)) for name in names]
