"""The case files of the dialects: requests, responses and streams as bytes, with the expected events."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dragoman import dialects
from dragoman.core import errors
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.collect import Collector
from dragoman.wire.dialect import Dialect
from support.check_each import check_each
from support.paths import DATA

FOLDER = DATA / "dialects"


SMALLEST = {
    "openai_chat": '{"model":"m","messages":[{"role":"user","content":"hi"}]',
    "anthropic_messages": '{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]',
    "openai_responses": '{"model":"m","input":"hi"',
}


CUSTOM = v.Tool("p", extra={"type": msgspec.Raw(b'"custom"')})


ERROR_KEYWORDS = {"status", "retry_after_s"}


@dataclass
class Case:
    dialect: str
    title: str
    kind: str
    text: str
    expected: str

    @property
    def api(self) -> Dialect:
        return dialects.get(self.dialect)

    @property
    def request(self) -> v.Request:
        tools = (CUSTOM,) if "custom" in self.kind else ()
        extra = {"functions": msgspec.Raw(b"[]")} if "functions" in self.kind else {}
        return v.Request("m", (), tools, stream=True, stream_usage="usage asked" in self.kind, extra=extra)

    def events(self) -> list[ev.AnyEvent]:
        return [event(line) for line in self.text.splitlines()]


def load() -> Iterator[Case]:
    for path in sorted(FOLDER.glob("*/*.txt")):
        for block in re.split(r"^# ", path.read_text(), flags=re.M)[1:]:
            head, _, expected = block.partition("\n---\n")
            title, kind, text = head.split("\n", 2)
            yield Case(path.parent.name, title, kind, text, expected.strip("\n"))


LOADED = list(load())


ANSWERS = [c for c in LOADED if c.kind.startswith("answer")]
"""Upstream responses, tested by tests/contract/test_upstream_responses.py."""


SENT = [c for c in LOADED if c.kind.startswith("sent")]
"""Upstream requests, tested by tests/contract/test_sent_requests.py."""


CASES = [c for c in LOADED if c not in ANSWERS and c not in SENT]


STREAMS = [c for c in CASES if c.kind.startswith("events")]


def each(cases: list[Case]) -> Callable[[Callable[[Case], None]], Callable[[str, pytest.Subtests], None]]:
    """Turns the check of one case into a test of all cases: one item for each dialect, a subtest for each failure."""

    def test_of(check: Callable[[Case], None]) -> Callable[[str, pytest.Subtests], None]:
        @pytest.mark.parametrize("dialect", sorted({case.dialect for case in cases}))
        def test(dialect: str, subtests: pytest.Subtests) -> None:
            check_each(subtests, [case for case in cases if case.dialect == dialect], check, title)

        return test

    return test_of


def title(case: Case) -> str:
    return f"{case.dialect}: {case.title}"


def words(line: str) -> tuple[str, list[object]]:
    """The first word of a line, and the JSON values after it."""
    name, _, rest = line.partition(" ")
    found, at = [], 0
    while at < len(rest):
        value, at = json.JSONDecoder().raw_decode(rest, at)
        found.append(value)
        at += 1
    return name, found


def event(line: str) -> ev.AnyEvent:
    name, given = words(line)
    kinds: dict[str, Callable[..., ev.AnyEvent]] = {
        "start": lambda tokens=0: ev.Start("1", "m", 7, tokens),
        "reasoning": ev.ReasoningDelta,
        "text": ev.TextDelta,
        "refusal": ev.RefusalDelta,
        "vendor": lambda dialect, kind, block: ev.VendorBlock(dialect, kind, json.dumps(block, separators=(",", ":"))),
        "detail": ev.Detail,
        "call": ev.ToolCallStart,
        "arguments": ev.ToolCallDelta,
        "end": lambda index, *mended: ev.ToolCallEnd(index, mended),
        "incomplete": ev.ToolCallIncomplete,
        "warning": ev.Notice,
        "usage": lambda *counts: ev.UsageUpdate(v.Usage(*counts)),
        "finish": ev.Finish,
        "failure": lambda kind, *rest: ev.Failure(error(kind, rest)),
    }
    return kinds[name](*given)


def error(kind: str, given: list[object]) -> errors.DragomanError:
    keywords = given[-1] if given and isinstance(given[-1], dict) and given[-1].keys() <= ERROR_KEYWORDS else None
    made: errors.DragomanError = getattr(errors, kind)(*(given[:-1] if keywords else given), **(keywords or {}))
    return made


def shown(request: v.Request) -> list[str]:
    """A request in the notation of the case files: one line for each value that is not the default."""
    lines = [f"model {request.model}"]
    for message in request.messages:
        lines.append(f"{message.role}{said(message.extra)}")
        lines += [f"  {part(p)}" for p in message.parts]
    for tool in request.tools:
        name = tool.name if tool.kind == "function" else f"{tool.name} of kind {tool.kind}"
        lines.append(f"tool {name} {json.dumps(tool.description)} {tool.parameters}{said(tool.extra)}")
    for field in (
        "tool_choice",
        "max_tokens",
        "stop",
        "response_schema",
        "stream",
        "stream_usage",
        "previous_response",
    ):
        if (value := getattr(request, field)) != getattr(v.Request("", ()), field):
            lines.append(f"{field} {plain(value)}")
    lines += [f"{k} {plain(x)}" for k, x in msgspec.structs.asdict(request.sampling).items() if x is not None]
    return lines + [f"extra {k} {bytes(raw).decode()}" for k, raw in request.extra.items()]


def part(value: v.Part) -> str:
    match value:
        case v.Text(text, extra):
            return f"text {json.dumps(text, ensure_ascii=False)}{said(extra)}"
        case v.ToolCall(id, name, arguments, extra):
            return f"call {id} {name} {arguments}{said(extra)}"
        case v.ToolResult(call_id, parts, is_error, extra):
            inside = " | ".join(map(part, parts))
            return f"{'error' if is_error else 'result'} of {call_id} [{inside}]{said(extra)}"
        case v.PreviousResponseRef(reply_id, number):
            return f"part {number} of {reply_id}"
        case v.UnknownPart(kind, raw):
            return f"opaque {kind} {bytes(raw).decode()}"
    fields = msgspec.structs.asdict(value)
    extra = fields.pop("extra")
    return f"{type(value).__name__.lower()} {plain({k: x for k, x in fields.items() if x})}{said(extra)}"


def plain(value: object) -> str:
    if isinstance(value, str):
        return value
    filled = value if not isinstance(value, dict) else {k: bare(x) for k, x in value.items()}
    return json.dumps(msgspec.to_builtins(bare(filled)), ensure_ascii=False)


def bare(value: object) -> object:
    return (
        {k: x for k, x in msgspec.structs.asdict(value).items() if x not in ("", None)}
        if isinstance(value, v.FrozenStruct)
        else value
    )


def said(extra: v.ExtraFields) -> str:
    return "".join(f" + {name} {bytes(raw).decode()}" for name, raw in extra.items())


def stream(case: Case) -> bytes:
    writer = case.api.writer(case.request)
    return b"".join(map(writer.feed, case.events()))


def whole(case: Case) -> bytes:
    return case.api.write_reply(reply_of(case), case.request)


def reply_of(case: Case) -> v.Reply:
    """The complete reply, with an incomplete call as it was streamed."""
    collector = Collector(case.dialect, keep_broken=True)
    for event in case.events():
        collector.feed(event)
    if collector.error:
        raise collector.error
    return collector.reply()


def of(name: str, *, failed: bool = False) -> list[Case]:
    return [c for c in STREAMS if c.dialect == name and ("failure" in c.text) == failed]


def given(call: Any) -> tuple[str | None, str | None]:
    """The name and input of a call; the SDK's stream types have no custom tools."""
    if getattr(call, "function", None) is not None:
        return call.function.name, call.function.arguments
    custom = call.custom if isinstance(call.custom, dict) else call.custom.to_dict()
    return custom.get("name"), custom.get("input")
