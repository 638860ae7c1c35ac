"""Case files for formats: one reply and the expected events, for any chunking.

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
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from dragoman import formats
from dragoman.core import events as ev
from dragoman.core.messages import Tool
from dragoman.parsing.reader_options import ReaderBuffering, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from support.paths import DATA

ALARM = {
    "hour": {"type": "integer"},
    "volume": {"type": "number"},
    "repeat": {"type": "boolean"},
    "label": {"type": "string"},
    "note": {"type": ["string", "null"]},
    "days": {"type": "array", "items": {}},
    "at": {"type": "object"},
}
TOOLS = [
    *(Tool(n) for n in ("get_weather", "read_file", "write_file", "ping")),
    Tool("search", parameters='{"type": "object", "required": ["query"]}'),
    Tool("set_alarm", parameters=json.dumps({"type": "object", "properties": ALARM})),
]
OPTION = re.compile(r"(tools|reason|tail|taken): (.*)\n|(lenient)\n")


@dataclass
class Case:
    """One reply and its expected events."""

    format: str
    title: str
    text: str
    expected: list[str]
    options: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> Literal["stop", "length"]:
        return "length" if self.options.get("reason") == "length" else "stop"

    def reader(self, buffering: ReaderBuffering = "off") -> ReplyReader:
        ids = itertools.count()
        return ReplyReader(
            formats.get(self.format),
            None if self.options.get("tools") == "any" else TOOLS,
            new_id=lambda: str(next(ids)),
            options=self.reader_options(buffering),
        )

    def reader_options(self, buffering: ReaderBuffering = "off", control: Iterable[str] = ()) -> ReaderOptions:
        return ReaderOptions(
            prompt_suffix=self.options.get("tail", "").replace("\\n", "\n"),
            lenient="lenient" in self.options,
            used_ids=self.options.get("taken", "").split(),
            buffering=buffering,
            control=control,
        )

    @cached_property
    def events(self) -> tuple[ev.AnyEvent, ...]:
        """Of the whole text; it is read once."""
        return tuple(self.read([self.text]))

    def read(self, pieces: Iterable[str], reason: Literal["stop", "length"] | None = None) -> list[ev.AnyEvent]:
        reader = self.reader()
        events = [e for piece in pieces for e in reader.feed(piece)]
        return events + reader.close(reason or self.reason)


def load(path: Path) -> list[Case]:
    cases = []
    for block in re.split(r"^# ", path.read_text(), flags=re.M)[1:]:
        title, _, rest = block.partition("\n")
        options: dict[str, str] = {}
        while found := OPTION.match(rest):
            options[found[1] or found[3]] = found[2] or ""
            rest = rest[found.end() :]
        text, _, expected = rest.partition("---\n") if rest.startswith("---\n") else rest.partition("\n---\n")
        cases.append(Case(path.stem, title, text, [line for line in expected.splitlines() if line], options))
    return cases


@cache
def cases_by_format() -> dict[str, list[Case]]:
    return {path.stem: load(path) for path in sorted((DATA / "formats").glob("*.txt"))}


def all_cases() -> list[Case]:
    return [case for cases in cases_by_format().values() for case in cases]


def title(case: Case) -> str:
    return case.title


def shown(events: Iterable[ev.AnyEvent], ids: bool = False, late: bool = False) -> list[str]:
    """Events in the notation of the case files, with adjacent deltas joined and warnings in place.

    `late`: with ids that the model wrote after the arguments.
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
            return f"incomplete {name} {arguments}"
        case _:
            return " ".join(line)
