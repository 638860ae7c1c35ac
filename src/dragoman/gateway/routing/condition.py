"""Conditions of routes: what a request must be, and what it is.

Each is compiled once. What a condition needs of the request, such as its tokens, is computed on first use and once for
all routes.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from fnmatch import translate
from functools import cached_property
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from dragoman import dialects
from dragoman.core.client import ClientFacts
from dragoman.core.errors import ConfigError, quote
from dragoman.core.messages import Image, Request, ToolResult
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway.routing.config import Patterns, RouteConfig, as_patterns

_SHOWN_TOOLS: Final = 5
_TIMES: Final = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_DAY_MINUTES: Final = 24 * 60


class RoutedRequest:
    """A request and its client, as the conditions see them."""

    def __init__(self, request: Request, client: ClientFacts, now: Callable[[tzinfo | None], datetime]) -> None:
        self.request, self.client, self._now = request, client, now

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The name of the model as the client wrote it, and the one that it stands for in the client's API."""
        model, dialect = self.request.model, self.request.dialect
        own = dialects.get(dialect).resolve_display_name(model) if dialect else model
        return (model,) if own == model else (model, own)

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of the prompt."""
        return GENERIC.estimate_request(self.request)

    @cached_property
    def has_images(self) -> bool:
        """Whether the conversation has images."""
        return has_images(self.request)

    def minute(self, zone: tzinfo | None) -> int:
        """Returns the minute of the day."""
        now = self._now(zone)
        return now.hour * 60 + now.minute


class Condition(NamedTuple):
    """One condition of a route."""

    name: str
    """The setting."""
    expected: str
    holds: Callable[[RoutedRequest], bool]
    got: Callable[[RoutedRequest], str]
    """Returns what the request is, as text."""


def conditions_of(config: RouteConfig, where: str) -> tuple[Condition, ...]:
    """Returns the conditions of a route, the cheapest first.

    Args:
        config: The settings of the route.
        where: The place of the route, for errors.

    Raises:
        ConfigError: A time or a zone is not valid.
    """
    return (*_names(config), *_times(config, where), *_contents(config), *_sizes(config))


def has_images(request: Request) -> bool:
    """Returns whether a message or a tool result of the request has an image."""
    for message in request.messages:
        for part in message.parts:
            if type(part) is Image or (type(part) is ToolResult and any(type(each) is Image for each in part.parts)):
                return True
    return False


def _names(config: RouteConfig) -> Iterator[Condition]:
    yield from _name("agent", config.agent, lambda call: call.client.agent)
    yield from _name("role", config.role, lambda call: call.client.role)
    yield from _name("key", config.key, lambda call: call.client.key)
    if matches := _matcher(config.model):
        yield Condition(
            "model",
            _text(config.model),
            lambda call: any(map(matches, call.models)),
            lambda call: quote(call.request.model),
        )


def _name(name: str, patterns: Patterns, value: Callable[[RoutedRequest], str]) -> Iterator[Condition]:
    if matches := _matcher(patterns):
        yield Condition(
            name,
            _text(patterns),
            lambda call: bool(known := value(call)) and matches(known),
            lambda call: value(call) or "unknown",
        )


def _contents(config: RouteConfig) -> Iterator[Condition]:
    if config.reply_schema is not None:
        yield _flag("reply_schema", config.reply_schema, lambda call: bool(call.request.response_schema))
    if isinstance(config.tools, bool):
        yield _flag("tools", config.tools, lambda call: bool(call.request.tools))
    elif config.tools is not None and (matches := _matcher(config.tools)):
        yield Condition(
            "tools",
            _text(config.tools),
            lambda call: any(matches(tool.name) for tool in call.request.tools),
            lambda call: _some([tool.name for tool in call.request.tools]),
        )
    if config.images is not None:
        yield _flag("images", config.images, lambda call: call.has_images)


def _sizes(config: RouteConfig) -> Iterator[Condition]:
    least, most = config.min_tokens, config.max_tokens
    if least:
        yield Condition("min_tokens", str(least), lambda call: call.tokens >= least, lambda call: str(call.tokens))
    if most:
        yield Condition("max_tokens", str(most), lambda call: call.tokens <= most, lambda call: str(call.tokens))


def _times(config: RouteConfig, where: str) -> Iterator[Condition]:
    if not config.time:
        if config.zone:
            raise ConfigError(f'expected a time with the zone, such as "22:00-06:00", got none - at {where}.time')
        return
    spans = [_span(text, where) for text in as_patterns(config.time)]
    zone = _zone(config.zone, where)
    yield Condition(
        "time",
        _text(config.time),
        lambda call: any((call.minute(zone) - begin) % _DAY_MINUTES < length for begin, length in spans),
        lambda call: "{:02}:{:02}".format(*divmod(call.minute(zone), 60)),
    )


def _span(text: str, where: str) -> tuple[int, int]:
    """Returns the first minute of the day, and the number of minutes."""
    match = _TIMES.fullmatch(text.strip())
    hour, minute, end_hour, end_minute = map(int, match.groups()) if match else (99, 0, 0, 0)
    begin, end = hour * 60 + minute, end_hour * 60 + end_minute
    if match is None or max(minute, end_minute) > 59 or max(begin, end) > _DAY_MINUTES or begin == end:
        raise ConfigError(f'expected times such as "22:00-06:00", got {quote(text)} - at {where}.time')
    return begin, (end - begin) % _DAY_MINUTES or _DAY_MINUTES


def _zone(name: str, where: str) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a name; a folder of zones
        raise ConfigError(
            f'expected a time zone such as "Europe/Berlin", got {quote(name)}, which this machine does not know'
            f" - at {where}.zone"
        ) from None


def _matcher(patterns: Patterns) -> Callable[[str], bool] | None:
    """Returns a function that tests whether a name matches one of the patterns, in any case; None: there are none."""
    if not patterns:
        return None
    compiled = [re.compile(translate(pattern.lower())) for pattern in as_patterns(patterns)]
    return lambda name: any(pattern.match(name.lower()) for pattern in compiled)


def _flag(name: str, expected: bool, value: Callable[[RoutedRequest], bool]) -> Condition:
    return Condition(name, _yes(expected), lambda call: value(call) is expected, lambda call: _yes(value(call)))


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _text(patterns: Patterns) -> str:
    return " or ".join(as_patterns(patterns))


def _some(names: list[str]) -> str:
    """Returns a few of the names."""
    first = [quote(name) for name in names[:_SHOWN_TOOLS]]
    more = [f"{len(names) - len(first)} more"] if len(names) > len(first) else []
    return ", ".join([*first, *more]) or "none"
