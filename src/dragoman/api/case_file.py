"""Case files of formats: one reply and the expected events, for any chunking.

    # title
    option: value            tools, reason, tail, taken, lenient (before the text)
    the model's text
    ---
    events                   text "…" | reasoning "…" | warning CODE | call NAME ARGUMENTS [ID]
                             | incomplete NAME ARGUMENTS

`\\n` in `tail` and in arguments of an expected call stands for a line break.
"""

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from dragoman.core import events as ev
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Tool
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import ReaderBuffering, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader

ALARM: Final = {
    "hour": {"type": "integer"},
    "volume": {"type": "number"},
    "repeat": {"type": "boolean"},
    "label": {"type": "string"},
    "note": {"type": ["string", "null"]},
    "days": {"type": "array", "items": {}},
    "at": {"type": "object"},
}
TOOLS: Final = (
    *(Tool(name) for name in ("get_weather", "read_file", "write_file", "ping")),
    Tool("search", parameters='{"type": "object", "required": ["query"]}'),
    Tool("set_alarm", parameters=json.dumps({"type": "object", "properties": ALARM})),
)
"""The tools that every case offers."""
_OPTION: Final = re.compile(r"(tools|reason|tail|taken): (.*)\n|(lenient)\n")
_WITH_ID: Final = re.compile(r"\} (call_\w+|my_call-7|a)$")


@dataclass
class FormatCase:
    """One reply and its expected events."""

    call_format: Format
    title: str
    text: str
    expected: list[str]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> Literal["stop", "length"]:
        """Why the reply ended."""
        return "length" if self.options.get("reason") == "length" else "stop"

    @property
    def expects_ids(self) -> bool:
        """Whether the expected calls have ids."""
        return any(_WITH_ID.search(line) for line in self.expected)

    def reader(self, buffering: ReaderBuffering = "off") -> ReplyReader:
        """Returns a new reader for the text."""
        ids = itertools.count()
        tools = None if self.options.get("tools") == "any" else TOOLS
        return ReplyReader(
            self.call_format, tools, new_id=lambda: str(next(ids)), options=self.reader_options(buffering)
        )

    def reader_options(self, buffering: ReaderBuffering = "off", control: Iterable[str] = ()) -> ReaderOptions:
        """Returns the options of the reader."""
        return ReaderOptions(
            prompt_suffix=self.options.get("tail", "").replace("\\n", "\n"),
            lenient="lenient" in self.options,
            used_ids=self.options.get("taken", "").split(),
            buffering=buffering,
            control=control,
        )

    @cached_property
    def events(self) -> tuple[ev.AnyEvent, ...]:
        """The events of the whole text, which is read once."""
        return tuple(self.read([self.text]))

    def read(self, pieces: Iterable[str], reason: Literal["stop", "length"] | None = None) -> list[ev.AnyEvent]:
        """Returns the events of a text in pieces.

        Args:
            pieces: The text.
            reason: Why it ended; None: as in the case.
        """
        reader = self.reader()
        events = [event for piece in pieces for event in reader.feed(piece)]
        return events + reader.close(reason or self.reason)


def parse_cases(text: str, format: Format) -> list[FormatCase]:
    """Returns the cases of a file's text."""
    cases = []
    for block in re.split(r"^# ", text, flags=re.M)[1:]:
        title, _, rest = block.partition("\n")
        options: dict[str, str] = {}
        while found := _OPTION.match(rest):
            options[found[1] or found[3]] = found[2] or ""
            rest = rest[found.end() :]
        reply, _, expected = rest.partition("---\n") if rest.startswith("---\n") else rest.partition("\n---\n")
        cases.append(FormatCase(format, title, reply, [line for line in expected.splitlines() if line], options))
    return cases


def load_cases(path: Path, format: Format) -> list[FormatCase]:
    """Returns the cases in a file.

    Raises:
        ConfigError: The file cannot be read, or has no case.
    """
    try:
        cases = parse_cases(path.read_text(encoding="utf-8"), format)
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8: {e}") from None
    if not cases:
        raise ConfigError(f"{path} has no case; expected a line '# title', the model's text, '---' and the events")
    return cases


def show_events(events: Iterable[ev.AnyEvent], *, ids: bool = False, late: bool = False) -> list[str]:
    """Returns events in the notation of the case files, with adjacent deltas joined and warnings in place.

    Args:
        events: The events.
        ids: Whether calls have their ids.
        late: Whether an id that the model wrote after the arguments counts.
    """
    lines: list[list[str]] = []
    call: list[str] = []
    for event in events:
        match event:
            case ev.TextDelta(text) | ev.ReasoningDelta(text):
                kind = "text" if isinstance(event, ev.TextDelta) else "reasoning"
                if lines and lines[-1][0] == kind:
                    lines[-1][1] += text
                else:
                    lines.append([kind, text])
            case ev.ToolCallStart(_, id, name):
                call = [name, "", id]
            case ev.ToolCallDelta(_, text):
                call[1] += text
            case ev.ToolCallEnd(id=id):
                lines.append(["call", *call[:2], (late and id) or call[2]])
            case ev.ToolCallIncomplete():
                lines.append(["incomplete", *call])
            case ev.Notice(code):
                lines.append(["warning", code])
            case _:
                lines.append([repr(event)])
    return [_line(line, ids) for line in lines]


def _line(line: list[str], ids: bool) -> str:
    match line:
        case ["text" | "reasoning" as kind, text]:
            return f"{kind} {json.dumps(text, ensure_ascii=False)}"
        case ["call", name, arguments, id]:
            escaped = arguments.replace("\n", "\\n")
            return f"call {name} {escaped} {id}" if ids else f"call {name} {escaped}"
        case ["incomplete", name, arguments, _]:
            return f"incomplete {name} {arguments}".replace("\n", "\\n")
        case _:
            return " ".join(line)
