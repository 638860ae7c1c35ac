"""Parameters that the CLI cannot express: they are dropped, and reported if they could change the response.

Source: `claude --help` of 2.1.329; the members of a request in https://docs.anthropic.com/en/api/messages,
https://platform.openai.com/docs/api-reference/chat/create and …/responses/create; November 2026.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dragoman.backends.claude_cli.command import EFFORTS
from dragoman.core.events import Notice
from dragoman.core.messages import Request
from dragoman.text.lenient_values import EMPTY_VALUES
from dragoman.wire.translation import notices_by_name

_SUPPORTED: Final = frozenset(
    (
        *("effort", "format", "functions", "max_completion_tokens", "output_config", "output_format"),
        *("reasoning_effort", "response_format", "thinking"),
    )
)
"""Parameters that the CLI has a setting for, or that are fields of `Request`."""
_WITHOUT_EFFECT: Final = frozenset(
    (
        *("background", "cache_control", "client_metadata", "generate_summary", "include", "metadata"),
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store"),
        *("stream_options", "summary", "truncation", "user", "x-anthropic-billing-header"),
    )
)
"""About the account, the connection, or storage: the response is the same without them."""
_NESTED: Final = ("output_config", "reasoning", "text")
"""Objects whose members are checked one by one."""
_DEFAULTS: Final[Mapping[str, Sequence[object]]] = {
    "frequency_penalty": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "temperature": (1,),
    "text.verbosity": ("medium",),
    "tools.allowed_callers": (["direct"],),
    "top_k": (-1, 0),
    "top_p": (1,),
    "verbosity": ("medium",),
}
"""Values that are the default, so dropping them changes nothing."""


_TOOL_MEMBERS: Final = frozenset(("tools.allowed_callers", "tools.input_examples", "tools.strict"))
"""Members of a tool that change its calls."""


def unsupported_warnings(request: Request, hosted: Sequence[str]) -> tuple[Notice, ...]:
    """Returns a warning for each parameter that is dropped.

    Args:
        request: the request.
        hosted: the kinds of tools that the vendor would have to run.
    """
    sampling = {name: value for name, value in msgspec.structs.asdict(request.sampling).items() if value is not None}
    members = {**sampling, **dict(_members(request.extra))}
    named = [name for name, value in members.items() if value not in _DEFAULTS.get(name, ())]
    named += dict.fromkeys(
        name for tool in request.tools for name, _ in _members(tool.extra, "tools.") if name in _TOOL_MEMBERS
    )
    if request.reasoning_effort not in EFFORTS | {"", "none", "minimal"}:
        named.append("effort")
    named += dict.fromkeys(hosted)
    warnings = [
        *notices_by_name("content_dropped", "claude has no equivalent of: {}", dict(zip(named, named, strict=True)))
    ]
    if request.reasoning_effort == "minimal":
        warnings.append(Notice("request_adapted", "for claude: effort low, its lowest", detail="effort"))
    return tuple(warnings)


def _members(extra: Mapping[str, msgspec.Raw], outer: str = "") -> Iterator[tuple[str, object]]:
    for name, raw in extra.items():
        if name in _NESTED and bytes(raw).startswith(b"{"):
            yield from _members(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), f"{name}.")
        elif name not in _SUPPORTED | _WITHOUT_EFFECT and bytes(raw) not in EMPTY_VALUES:
            yield outer + name, msgspec.json.decode(raw)
