"""Detects the format of a call that the server left in the text, by trying all readers."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dragoman import formats
from dragoman.core.events import Notice, TextDelta, ToolCallEnd, ToolCallStart
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Tool
from dragoman.identify import detect_format
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader

_AUTO: Final = "auto"
_PREFERRED: Final = "hermes"


class DetectedFormat(NamedTuple):
    """A complete call in a text."""

    format: str
    """The format that reads it best; of several, the one for models of this name, else the most common one."""
    tagged: bool
    """Whether it has that format's own markup; if not, only a lenient reader accepts it, as for JSON without tags."""
    by_name: bool
    """Whether the format for models of this name reads it as well."""


def find_leaked_call(text: str, tools: Sequence[Tool], model: str) -> DetectedFormat | None:
    """Returns the format of a call of these tools in the text; None if no reader finds a complete one."""
    if not text:
        return None
    named = detect_format(model).format
    lenient = _read_cost(named, text, tools, lenient=True)
    strict = {each.name: _read_cost(each, text, tools) for each in formats.built_in() if each.name != _AUTO}
    least = min((left for left in (*strict.values(), lenient) if left is not None), default=None)
    if least is None:
        return None
    best = [name for name, left in strict.items() if left == least]
    by_name = lenient == least
    if named.name in best or (by_name and named.name != _AUTO) or not best:
        return DetectedFormat(named.name, named.name in best, by_name)
    return DetectedFormat(_PREFERRED if _PREFERRED in best else best[0], True, by_name)


def has_call(text: str, format: Format, tools: Sequence[Tool]) -> bool:
    """Returns whether the text contains a complete call of these tools, as read for a model that was shown
    this format.
    """
    return _read_cost(format, text, tools, lenient=True) is not None


def started_calls(text: str, tools: Sequence[Tool], model: str) -> tuple[str, ...]:
    """Returns the names of calls that begin in the text, complete or not, in the format for models of this name."""
    reader = ReplyReader(detect_format(model).format, tools, new_id=random_id, options=ReaderOptions(lenient=True))
    events = [*reader.feed(text), *reader.close("length")]
    return tuple(event.name for event in events if isinstance(event, ToolCallStart))


def _read_cost(format: Format, text: str, tools: Sequence[Tool], *, lenient: bool = False) -> int | None:
    """Returns the characters that are not part of a call, plus the number of errors; None if there is no
    complete call.
    """
    reader = ReplyReader(format, tools, new_id=random_id, options=ReaderOptions(lenient=lenient))
    events = [*reader.feed(text), *reader.close("stop")]
    if not any(isinstance(event, ToolCallEnd) for event in events):
        return None
    problems = sum(isinstance(event, Notice) and event.code != "untagged_call" for event in events)
    return problems + sum(len(event.text) for event in events if isinstance(event, TextDelta))
