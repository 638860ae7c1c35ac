"""The properties of formats, as a table or in full; those that can be tested are, by writing calls and reading them."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman import formats
from dragoman.catalog.format_coverage import FormatCoverage, format_coverage
from dragoman.cli.formats.find import BUILT_IN, KnownFormat
from dragoman.constraints.constraint import ConstrainedCall
from dragoman.core.events import ToolCallEnd, ToolCallStart
from dragoman.core.messages import Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.parsing.format import ArgumentNotation, Format
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.parsing.sink import ForwardingSink
from dragoman.text.scanner import Parser, Scanner

Ids: TypeAlias = Literal["model's", "replaced", "ours"]
"""The origin of a call's id. Replaced: the model writes one, but no API accepts it, or it follows the arguments."""

TOOL: Final = Tool("get_weather", parameters='{"type": "object", "properties": {"city": {"type": "string"}}}')
CALLS: Final = (
    ToolCall("call00001", TOOL.name, '{"city": "Paris"}'),
    ToolCall("call00002", TOOL.name, '{"city": "Rome"}'),
)
SUNNY: Final = (Text("Sunny, 21 degrees."),)
REASONING_CHARS: Final = 12
"""Maximum width of reasoning markers in a table on a terminal."""
MODELS_CHARS: Final = 32
"""Maximum width of model names in a table on a terminal: enough to recognize most models."""
OPTIONAL_COLUMNS: Final = ("CASES", "SUITE", "REASONING", "IDS")
"""Columns that a narrow terminal leaves out, in this order."""


class Facts(msgspec.Struct, frozen=True):
    """The properties of a format."""

    name: str
    aliases: tuple[str, ...]
    models: str
    source: str
    reasoning: tuple[str, ...]
    """What begins reasoning."""
    openers: tuple[str, ...]
    """What begins a call, or a section of calls, in a reply of unknown format."""
    ids: Ids
    arguments: ArgumentNotation
    constrained: bool
    """Whether constrained decoding can enforce calls that match the tools' schemas."""
    proven: FormatCoverage | None
    """The test results of its reader; None: the format is not one of Dragoman's own."""
    call: str
    """An example as the model writes it, as the fields below."""
    calls: str
    result: str
    """Used where the model's own chat template does not write results."""
    origin: str
    """`built-in`, the package that offers it, or `settings`."""


def collect_facts(format: Format, origin: str = BUILT_IN) -> Facts:
    """Returns the properties of a format; those that can be tested are, by writing calls and reading them."""
    call = format.constrain((TOOL,), ToolChoice("required"))
    return Facts(
        format.name,
        format.aliases,
        format.model_families,
        format.source,
        format.reasoning_markers,
        tuple(format.calls),
        _ids(format),
        format.arguments,
        call is not None,
        format_coverage().get(format.name) if origin == BUILT_IN else None,
        format.write_calls(CALLS[:1]),
        format.write_calls(CALLS),
        format.write_result(ToolResult(format.numbered(CALLS[0], 0).id, SUNNY), TOOL.name),
        origin,
    )


def format_table(width: int | None = None, added: Sequence[KnownFormat] = ()) -> str:
    """Returns the table of all formats.

    Args:
        width: columns of the terminal, for which the table is shortened; None: complete.
        added: formats that are not built in.
    """
    rows = [("FORMAT", "ARGUMENTS", "IDS", "GRAMMAR", "CASES", "SUITE", "REASONING", "WRITTEN BY")]
    built_in = [KnownFormat(each, BUILT_IN) for each in formats.built_in()]
    for known in (collect_facts(*each) for each in (*built_in, *added)):
        constrained = "yes" if known.constrained else "-"
        reasoning = ", ".join(known.reasoning) or "-"
        reasoning = reasoning if width is None else _short(reasoning, REASONING_CHARS)
        cases, suite = _test_counts(known.proven)
        models = known.models if known.origin == BUILT_IN else f"{known.models} [{known.origin}]"
        rows.append((known.name, known.arguments, known.ids, constrained, cases, suite, reasoning, models))
    columns = [[cell.ljust(max(map(len, column))) for cell in column] for column in zip(*rows, strict=True)]
    for title in OPTIONAL_COLUMNS:
        before = sum(len(column[0]) + 2 for column in columns[:-1])
        if width is None or width - before >= MODELS_CHARS:
            break
        columns = [column for column in columns if column[0].rstrip() != title]
    lines = ("  ".join(row).rstrip() for row in zip(*columns, strict=True))
    return "\n".join(line if width is None else _short(line, width) for line in lines)


def _test_counts(proof: FormatCoverage | None) -> tuple[str, str]:
    """Returns the number of cases of Dragoman's tests, and of fixtures of the neutral suite."""
    if proof is None:
        return "-", "-"
    return str(proof.cases), f"{proof.passed}/{proof.fixtures}" if proof.fixtures else "-"


def format_facts(format: Format, origin: str = BUILT_IN) -> str:
    """Returns the description of one format, with examples."""
    known = collect_facts(format, origin)
    rows = [
        ("origin", "" if origin == BUILT_IN else origin),
        ("also called", ", ".join(known.aliases)),
        ("written by", known.models),
        ("source", known.source),
        ("calls open with", "  ".join(map(_line, known.openers)) or "(nothing of its own)"),
        ("reasoning", "  ".join(map(_line, known.reasoning))),
        ("ids", IDS[known.ids]),
        ("arguments", ARGUMENTS[known.arguments]),
        ("tried on", _tested_with(known.proven)),
    ]
    head = "\n".join(f"  {title:<16}{text}" for title, text in rows if text)
    examples = [
        ("a call", known.call),
        ("two calls", known.calls),
        ("a result", known.result),
        ("grammar", _grammar(format)),
    ]
    listing = "\n\n".join(f"{title}\n{indent(text, '    ')}" for title, text in examples)
    return f"{known.name}\n{head}\n\n{listing}"


IDS: Final[dict[Ids, str]] = {
    "model's": "the model writes them, and they are passed on",
    "replaced": "the model writes them, but in a form or place where they cannot be passed on",
    "ours": "the model writes none; calls get random ones",
}
ARGUMENTS: Final[dict[ArgumentNotation, str]] = {
    "JSON": "one JSON object",
    "tagged": "each between tags; the tool's schema says of what type it is, unless the tag does",
    "notation": "in a notation of its own",
    "Python": "Python's keyword arguments",
}


def _tested_with(proof: FormatCoverage | None) -> str:
    if proof is None:
        return ""
    suite = f"; {proof.passed} of {proof.fixtures} fixtures of canitoolcall" if proof.fixtures else ""
    return f"{proof.cases} cases of our own, in every cut{suite}"


def _grammar(format: Format) -> str:
    """Returns the grammar for constrained decoding, around the schema of the arguments."""
    choices = (ToolChoice("auto"), ToolChoice("required"))
    constraint = next(filter(None, (format.constrain((TOOL,), choice) for choice in choices)), None)
    if constraint is None:
        return "not yet"
    (call,) = constraint.calls
    lines = [
        f"free up to {_line(constraint.trigger)}, then" if constraint.optional else "only where a call is required"
    ]
    lines += (
        [f"{_line(constraint.wrapper[0])}  …  {_line(constraint.wrapper[1])}  around all calls"]
        if any(constraint.wrapper)
        else []
    )
    return "\n".join([*lines, _call(call)])


def _call(call: ConstrainedCall) -> str:
    return f"{_line(call.prefix)}  arguments that fit the schema  {_line(call.suffix)}".rstrip()


class _Ids(ForwardingSink):
    """Records the id that the model wrote."""

    def __init__(self, format: Format) -> None:
        self.call_id = ""
        self.format = replace(format, read=self._read)
        self._format = format

    def _read(self, s: Scanner, sink: object) -> Parser[None]:
        self.sink = sink  # type: ignore[assignment]
        yield from self._format.read(s, self)

    def start(self, name: str, id: str = "") -> None:
        """Records the id."""
        self.call_id = id
        self.sink.start(name, id)


def _ids(format: Format) -> Ids:
    recorder = _Ids(format)
    reader, text = ReplyReader(recorder.format, (TOOL,), new_id=lambda: ""), format.write_calls(CALLS[:1])
    events = [*reader.feed(text), *reader.close()]
    if any(isinstance(event, ToolCallStart) and event.id == recorder.call_id for event in events):
        return "model's"
    if any(isinstance(event, ToolCallEnd) and event.id == CALLS[0].id for event in events):
        return "model's"
    return "replaced" if recorder.call_id or CALLS[0].id in text else "ours"


def _line(text: str) -> str:
    """Returns the text in one line."""
    return text.replace("\n", "\\n")


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
