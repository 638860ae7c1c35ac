"""Settings of the guard: the section `[guard]`."""

import sys
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from dragoman.core import tool_name_match
from dragoman.core.call_limit import CALLS_LIMIT
from dragoman.core.complete_calls import MAX_BUFFERED_CHARS
from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.text import json_repairs

Delivery: TypeAlias = Literal["stream", "short", "atomic"]
DELIVERIES: Final[tuple[Delivery, ...]] = get_args(Delivery)
ARGUMENT_REPAIRS: Final = (
    "nested",
    "parse",
    "numbers",
    "booleans",
    "nulls",
    "strings",
    "wrap",
    "unwrap",
    "enum",
    "optional",
    "keys",
    "defaults",
    "unknown",
    "spread",
)
"""Repairs of arguments that are valid JSON (guard/repair_steps.py)."""
ALL_REPAIRS: Final = (*tool_name_match.STEPS, *json_repairs.REPAIRS, *ARGUMENT_REPAIRS)


def _doc(text: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **limits)


class GuardPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the guard; they apply to the calls of every response."""

    enabled: Annotated[bool, _doc("Whether calls are held against the schemas of their tools at all.")] = True
    delivery: Annotated[
        str,
        _doc(
            "`stream`: arguments flow as they come, and are only looked at. `short`: a call is held until it is whole, "
            "and flows from `hold_chars` on. `atomic`: each is held, and one that does not become right becomes words. "
            "A request may ask for another by the header x-dragoman-buffering."
        ),
    ] = "short"
    hold_chars: Annotated[int, _doc("Characters of arguments from which on a call flows, by `short`.", ge=0)] = (
        MAX_BUFFERED_CHARS
    )
    leave: Annotated[tuple[str, ...], _doc("Repair steps that are left out (docs/guard.md); `all`: no repair.")] = ()
    ask_again: Annotated[
        bool, _doc("Whether a model is re-asked where its call is invalid, or where it made none and had to.")
    ] = True
    again_tokens: Annotated[int, _doc("Most tokens of the second answer.", ge=1)] = 2048
    again_s: Annotated[float, _doc("Time for the second answer, in seconds.", gt=0)] = 60.0
    repeats: Annotated[
        int,
        _doc(
            "How often the same call may be made since the user's last words; the next is not passed on. 0: any.", ge=0
        ),
    ] = 0
    calls: Annotated[int, _doc("Most calls in one answer, which ends after them; 0: any number.", ge=0)] = CALLS_LIMIT

    def buffered_chars(self, delivery: str | None, *, stream: bool) -> int:
        """Returns up to how many characters of arguments a call is buffered.

        Args:
            delivery: The delivery that the request asks for; None: the one in the settings.
            stream: Whether the response is streamed to the client.
        """
        match delivery or self.delivery:
            case "short" if stream:
                return self.hold_chars
            case "stream" if stream:
                return 0
            case _:
                return sys.maxsize

    @property
    def disabled_repairs(self) -> frozenset[str]:
        """Names of the repairs that are not made."""
        return frozenset(ALL_REPAIRS if ALL in self.leave else self.leave)

    @property
    def enabled_repairs(self) -> frozenset[str]:
        """Names of the repairs that are made."""
        return frozenset(ALL_REPAIRS) - self.disabled_repairs


ALL: Final = "all"


def validate_policy(policy: GuardPolicy) -> GuardPolicy:
    """Returns the policy unchanged.

    Raises:
        ConfigError: The delivery or the name of a repair is unknown.
    """
    if policy.delivery not in DELIVERIES:
        hint = one_of(policy.delivery, DELIVERIES, "expected ")
        raise ConfigError(f"unknown delivery {quote(policy.delivery)}{hint} - at guard.delivery")
    for step in policy.leave:
        if step not in (*ALL_REPAIRS, ALL):
            hint = one_of(step, (*ALL_REPAIRS, ALL), "expected ")
            raise ConfigError(f"unknown step {quote(step)}{hint} - at guard.leave")
    return policy
