"""Settings of routes: the tables `[[routes]]`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from dragoman.schema.setting import setting

BALANCES: Final = ("order", "weighted", "least_busy", "sticky", "prefix")
Patterns: TypeAlias = str | tuple[str, ...]
"""One pattern such as `claude-*`, or several, one of which must match."""


class RouteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on a request, all of which must hold, and the models that such requests are sent to."""

    name: Annotated[str, setting("Name of the route in explanations and errors; empty: its number.")] = ""
    agent: Annotated[
        Patterns, setting("Agent or SDK that asks, such as `claude-code`; `*` stands for any text, here and below.")
    ] = ()
    role: Annotated[
        Patterns, setting("Part of the agent: `main`, `subagent`, `background`, `title` or `compaction`.")
    ] = ()
    model: Annotated[Patterns, setting("Model that the client requests.")] = ()
    key: Annotated[Patterns, setting("Name of the client's API key.")] = ()
    min_tokens: Annotated[int, setting("Minimum estimated tokens of the prompt.", ge=0)] = 0
    max_tokens: Annotated[int, setting("Maximum estimated tokens of the prompt; 0: no limit.", ge=0)] = 0
    tools: Annotated[
        bool | str | tuple[str, ...] | None, setting("Whether tools are offered; a pattern: a tool with such a name.")
    ] = None
    images: Annotated[bool | None, setting("Whether the conversation has images.")] = None
    reply_schema: Annotated[bool | None, setting("Whether the response must be JSON of a schema.")] = None
    time: Annotated[Patterns, setting('Time of day, such as "22:00-06:00", or several.')] = ()
    zone: Annotated[str, setting('Time zone of `time`, such as "Europe/Berlin"; empty: the machine\'s.')] = ""
    use: Annotated[
        str | tuple[str, ...] | dict[str, float],
        setting(
            "Models or aliases: one, a list, or a table of weights. The next is used where one fails. Empty: the "
            "requested model."
        ),
    ] = ()
    balance: Annotated[
        str,
        setting(
            "Which model is first: `order`, `weighted`, `least_busy` by active requests of its upstream, `sticky` the "
            "same for a session, `prefix` the one whose upstream has read most of the prompt and is not much busier. "
            "Empty: `weighted` for a table, else `order`.",
            choices=BALANCES,
        ),
    ] = ""
    describe_images: Annotated[
        str, setting("Vision model that describes images for a model that sees none; empty: none does.")
    ] = ""
    second_opinion: Annotated[
        str,
        setting(
            "Model or alias that is re-asked instead of the one whose response was not valid; empty: "
            "`guard.second_opinion`."
        ),
    ] = ""

    steps: Annotated[
        str | dict[str, Any],
        setting("Steps of requests that offer their tools and have none of their own (docs/steps.md), or `derive`."),
    ] = ""

    def weights(self) -> Mapping[str, float]:
        """Returns the models of `use` with their weights."""
        if isinstance(self.use, dict):
            return self.use
        return dict.fromkeys(as_patterns(self.use), 1.0)


def as_patterns(patterns: Patterns) -> tuple[str, ...]:
    """Returns one or several patterns as a tuple."""
    return (patterns,) if isinstance(patterns, str) else patterns
