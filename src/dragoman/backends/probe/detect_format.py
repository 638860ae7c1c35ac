"""Which format a call that was left in the text is in: all readers get it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dragoman import formats
from dragoman.core.events import Notice, TextDelta, ToolCallEnd, ToolCallStart
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Tool
from dragoman.identify import detect_format
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader

_ANY: Final = "auto"
_PLAIN: Final = "hermes"


class Leaked(NamedTuple):
    """A whole call in a text."""

    format: str
    """The one that reads it best; of several the one that models of this name write, else the plainest."""
    tagged: bool
    """In that format's own markup; else it is read only where one is lenient, as bare or fenced JSON is."""
    by_name: bool
    """What models of this name are read with reads it as well."""


def leaked(text: str, tools: Sequence[Tool], model: str) -> Leaked | None:
    """The call of these tools in this text; None where no reader finds a whole one."""
    if not text:
        return None
    named = detect_format(model).format
    kindly = _left_over(named, text, tools, lenient=True)
    strict = {name: _left_over(formats.get(name), text, tools) for name in formats.names() if name != _ANY}
    least = min((left for left in (*strict.values(), kindly) if left is not None), default=None)
    if least is None:
        return None
    best = [name for name, left in strict.items() if left == least]
    by_name = kindly == least
    if named.name in best or (by_name and named.name != _ANY) or not best:
        return Leaked(named.name, named.name in best, by_name)
    return Leaked(_PLAIN if _PLAIN in best else best[0], True, by_name)


def calls_in(text: str, format: Format, tools: Sequence[Tool]) -> bool:
    """Whether there is a whole call of these tools in it, as a model that was shown this format is read."""
    return _left_over(format, text, tools, lenient=True) is not None


def begun(text: str, tools: Sequence[Tool], model: str) -> tuple[str, ...]:
    """Names of the calls that begin in this text, whole or not, as models of this name write them."""
    reader = ReplyReader(detect_format(model).format, tools, new_id=random_id, lenient=True)
    events = [*reader.feed(text), *reader.close("length")]
    return tuple(event.name for event in events if isinstance(event, ToolCallStart))


def _left_over(format: Format, text: str, tools: Sequence[Tool], *, lenient: bool = False) -> int | None:
    """Characters that are no call, and how much was amiss; None where there is no whole call."""
    reader = ReplyReader(format, tools, new_id=random_id, lenient=lenient)
    events = [*reader.feed(text), *reader.close("stop")]
    if not any(isinstance(event, ToolCallEnd) for event in events):
        return None
    amiss = sum(isinstance(event, Notice) and event.code != "untagged_call" for event in events)
    return amiss + sum(len(event.text) for event in events if isinstance(event, TextDelta))
