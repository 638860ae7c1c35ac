"""Settings of the guard: the section `[guard]`."""

import sys
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec

from dragoman.core import tool_name_match
from dragoman.core.call_limit import MAX_CALLS
from dragoman.core.complete_calls import BUFFER_LIMIT_CHARS
from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.schema.setting import setting
from dragoman.text import json_repairs

Buffering: TypeAlias = Literal["off", "short", "all"]
InventedValues: TypeAlias = Literal["auto", "off", "warn", "reask"]
INVENTED_VALUES: Final[tuple[InventedValues, ...]] = get_args(InventedValues)
BUFFERING_MODES: Final[tuple[Buffering, ...]] = get_args(Buffering)
ARGUMENT_REPAIRS: Final = (
    "unnest",
    "parse_string",
    "to_number",
    "to_boolean",
    "to_null",
    "to_string",
    "wrap",
    "unwrap",
    "match_enum",
    "drop_null_optional",
    "rename_key",
    "fill_default",
    "drop_unknown",
    "split_into_calls",
)
"""Repairs of arguments that are valid JSON (guard/repair_steps.py)."""
ALL_REPAIRS: Final = (*tool_name_match.STEPS, *json_repairs.REPAIRS, *ARGUMENT_REPAIRS)


class GuardPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the guard; they apply to the calls of every response."""

    enabled: Annotated[bool, setting("Whether tool calls are validated against the schemas of their tools.")] = True
    buffering: Annotated[
        str,
        setting(
            "How long calls are buffered. `off`: arguments are streamed as they arrive, and only validated. `short`: a "
            "call is buffered until it is complete, or longer than `buffer_limit_chars`. `all`: each call is buffered, "
            "and one that stays invalid becomes text. The request header x-dragoman-buffering overrides this.",
            choices=BUFFERING_MODES,
        ),
    ] = "short"
    buffer_limit_chars: Annotated[
        int, setting("With `short`, calls whose arguments have more characters than this are streamed.", ge=0)
    ] = BUFFER_LIMIT_CHARS
    disabled_repairs: Annotated[
        tuple[str, ...], setting("Repairs that are not made, by their names (docs/guard.md); `all`: none is made.")
    ] = ()
    reask: Annotated[
        bool, setting("Whether the model is re-asked if its call is invalid, or if it made none and had to.")
    ] = True
    reask_max_tokens: Annotated[int, setting("Maximum tokens of the second response.", ge=1)] = 2048
    reask_timeout_s: Annotated[float, setting("Timeout for the second response, in seconds.", gt=0)] = 60.0
    second_opinion: Annotated[
        str,
        setting(
            "Model that is re-asked instead, where the route names none; empty: the model that wrote the response."
        ),
    ] = ""
    samples: Annotated[
        int,
        setting(
            "Second responses of the same model, up to 8; of several, the calls that most of them make are used. Each "
            "costs a generation.",
            ge=1,
            le=8,
        ),
    ] = 1
    invented_values: Annotated[
        str,
        setting(
            "What happens to a call with an identifier that occurs nowhere in the conversation. `reask`: the model is "
            "re-asked if another tool could find it; else a warning is sent. `auto`: `reask` for models that are known "
            "to invent them.",
            choices=INVENTED_VALUES,
        ),
    ] = "auto"
    max_identical_calls: Annotated[
        int,
        setting(
            "How often the same call may be made since the last user message; the next is not passed on. 0: no limit.",
            ge=0,
        ),
    ] = 0
    max_calls: Annotated[int, setting("Maximum calls of one response, which ends after them; 0: no limit.", ge=0)] = (
        MAX_CALLS
    )

    def buffer_limit(self, buffering: str | None, *, stream: bool) -> int:
        """Returns up to how many characters of arguments a call is buffered.

        Args:
            buffering: The buffering that the request asks for; None: as in the settings.
            stream: Whether the response is streamed to the client.
        """
        match buffering or self.buffering:
            case "short" if stream:
                return self.buffer_limit_chars
            case "off" if stream:
                return 0
            case _:
                return sys.maxsize

    @property
    def enabled_repairs(self) -> frozenset[str]:
        """Names of the repairs that are made."""
        return _repairs_without(tuple(self.disabled_repairs))


ALL: Final = "all"


@lru_cache(16)
def _repairs_without(disabled: tuple[str, ...]) -> frozenset[str]:
    return frozenset(() if ALL in disabled else ALL_REPAIRS).difference(disabled)


def validate_policy(policy: GuardPolicy) -> GuardPolicy:
    """Returns the policy unchanged.

    Raises:
        ConfigError: The buffering, `invented_values` or the name of a repair is unknown.
    """
    if policy.buffering not in BUFFERING_MODES:
        hint = one_of(policy.buffering, BUFFERING_MODES, "expected ")
        raise ConfigError(f"unknown buffering {quote(policy.buffering)}{hint} - at guard.buffering")
    if policy.invented_values not in INVENTED_VALUES:
        hint = one_of(policy.invented_values, INVENTED_VALUES, "expected ")
        raise ConfigError(f"unknown value {quote(policy.invented_values)}{hint} - at guard.invented_values")
    for step in policy.disabled_repairs:
        if step not in (*ALL_REPAIRS, ALL):
            hint = one_of(step, (*ALL_REPAIRS, ALL), "expected ")
            raise ConfigError(f"unknown repair {quote(step)}{hint} - at guard.disabled_repairs")
    return policy
