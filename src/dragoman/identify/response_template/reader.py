"""Builds a format from a response template.

Text and reasoning between literal markers are streamed. From the first call on, or from the first marker that needs a
regular expression, the rest of the reply is buffered and read at its end, because the end of such a match cannot be
known earlier.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from dragoman.core.errors import UnsupportedError
from dragoman.core.messages import JsonText
from dragoman.identify.response_template.content import CONTENT_ERRORS, field_value, to_json
from dragoman.identify.response_template.spec import Field, Region, Template
from dragoman.parsing.define_format import json_format, text_format
from dragoman.parsing.format import Format
from dragoman.parsing.shapes.object_notation import NumberText
from dragoman.parsing.sink import ToolCallSink
from dragoman.schema.argument_types import ALL, Schema, as_json, parse_complete
from dragoman.text.scanner import Parser, Scanner, markers

Role: TypeAlias = Literal["text", "reasoning", "calls", "nothing"]
ROLES: Final[Mapping[str, Role]] = {
    "thinking": "reasoning",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "tool_calls": "calls",
    "": "nothing",
}
"""The role of a field by its name; any other field is text."""
NAME: Final = "response_template"
MODELS: Final = "as the model's tokenizer states"
SOURCE: Final = "response_template of tokenizer_config.json, https://huggingface.co/docs/transformers/main (2026-11)"


class TemplateCall(NamedTuple):
    """A call, as a template describes it."""

    name: str
    arguments: Mapping[str, Any] | JsonText
    id: str

    def text(self, schema: Schema) -> JsonText:
        """Returns the arguments as JSON; values that the template left as text get the type that the schema states."""
        if isinstance(self.arguments, str):
            return self.arguments
        members = (f"{to_json(key)}: {_typed(value, schema.types_at(key))}" for key, value in self.arguments.items())
        return "{" + ", ".join(members) + "}"


class TemplateReader:
    """Reads replies by a response template."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._implicit_role = _role(template.implicit)
        self._streamed: dict[str, str] = {}
        """Literals that open a streamed field or close the implicit one, with the name of the field."""
        waited: list[str] = []
        for name, field in template.fields.items():
            mark = field.opens or field.closes
            if mark and mark.literals and (not field.opens or _streams(name, field)):
                self._streamed |= dict.fromkeys(mark.literals, name)
            elif mark:
                waited += mark.literals or (mark.prefix,)
        streams = self._implicit_role != "calls" and "" not in waited
        self._marks = (*self._streamed, *waited) if streams else ()

    def read(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        """Reads one reply."""
        noise, gap = list[str](), ""
        emits = {"text": sink.text, "reasoning": sink.reasoning}
        while self._marks:
            marker = yield from s.until(markers(*self._marks), emits.get(self._implicit_role, noise.append))
            noise.append(" ")
            if not marker or marker not in self._streamed:
                s.pos -= len(marker)
                gap = s.skipped_space
                break
            field = self._template.fields[self._streamed[marker]]
            yield from s.skip_space()
            if field.opens and field.closes:
                emit = emits[_role(self._streamed[marker])]
                yield from s.until(markers(*field.closes.literals), emit)
                yield from s.skip_space()
        while not s.closed:
            yield None
        base, text = s.pos, s.buf[s.pos :]
        for region in self._template.regions(text):
            self._emit_region(region, base, s, sink, gap, noise)
            gap = ""
        s.pos = len(s.buf)
        rest = " ".join("".join(noise).split())
        if rest:
            sink.warn("text_between_calls_dropped", "dropped text that no field of the response template takes", rest)

    def _emit_region(
        self, region: Region, base: int, s: Scanner, sink: ToolCallSink, gap: str, noise: list[str]
    ) -> None:
        """Emits the content of a region, and moves the scanner to its end."""
        body = region.body.rstrip()
        s.pos = base + region.start + len(body)
        match _role(region.field):
            case "calls":
                s.pos = base + region.closer_end
                self._emit_calls(region, s, sink)
            case "reasoning":
                sink.reasoning(body.lstrip())
            case "text":
                # White space before text that only looked like a call is text; next to a region it belongs to the
                # markup.
                sink.text(gap + body if gap and body[:1].strip() else body.lstrip())
            case _:
                noise.append(f" {body}")

    def _emit_calls(self, region: Region, s: Scanner, sink: ToolCallSink) -> None:
        field, raw = self._template.fields[region.field], region.raw
        if not region.closed and not s.stopped_by_model:
            sink.warn("truncated_call", "the reply was cut off within a call", raw)
            return
        try:
            calls = [_decode_call(item) for item in _items(field_value(field, region.body, region.captures))]
            named = [(name, call, call.text(sink.schema(name))) for call in calls if (name := sink.resolve(call.name))]
        except CONTENT_ERRORS as e:
            sink.warn("malformed_arguments", f"not a call as the response template has it: {e}", raw)
            sink.text(raw)
            return
        if len(named) < len(calls):
            unknown = next(call.name for call in calls if not sink.resolve(call.name))
            sink.warn("unknown_tool", f"the model called {unknown!r}, which is not an offered tool", raw)
            sink.text(raw)
            return
        for name, call, arguments in named:
            sink.start(name, call.id)
            sink.arguments(arguments)
            sink.end()


def build_format(template: Template) -> Format:
    """Returns the format of a response template; it can also write calls that are JSON between literal markers."""
    field = template.fields.get("tool_calls", Field())
    opener, closer = (anchor.literals[:1] if anchor else () for anchor in (field.opens, field.closes))
    keys = _call_keys(field)
    read = TemplateReader(template).read
    reasoning = {
        opens: field.closes.literals[0]
        for name, field in template.fields.items()
        if _role(name) == "reasoning" and _streams(name, field) and field.opens and field.closes
        for opens in field.opens.literals
    }
    marks = [m for field in template.fields.values() for a in (field.opens, field.closes) if a for m in a.literals]
    if not keys or not opener or (field.closes and not closer):
        return _read_only(read, reasoning, marks)

    def call_frame(name: str, _: str) -> tuple[str, str]:
        before = f"{opener[0]}{{{to_json(keys[0])}: {to_json(name)}, {to_json(keys[1])}: "
        return before, "}" + "".join(closer)

    base_format = json_format(
        name=NAME,
        model_families=MODELS,
        source=SOURCE,
        read=read,
        call_wrapper=call_frame,
        opener=opener[0],
        markers=tuple(marks),
    )
    return replace(base_format, reasoning_tags=reasoning)


def _read_only(
    read: Callable[[Scanner, ToolCallSink], Parser[None]], reasoning: dict[str, str], marks: list[str]
) -> Format:
    def refuse(*_: object) -> NoReturn:
        raise UnsupportedError("a format of this response template can be read, not written: name a format for that")

    base_format = text_format(
        name=NAME,
        model_families=MODELS,
        source=SOURCE,
        read=read,
        write_call=lambda _: "",
        opener="",
        markers=tuple(marks),
    )
    return replace(base_format, reasoning_tags=reasoning, write_call=refuse, write_tools=refuse, write_result=refuse)


def _call_keys(field: Field) -> tuple[str, str] | None:
    """The keys of the name and the arguments in the JSON of a call; None: calls are written in another way."""
    if field.content != "json" or field.content_args or field.transform_each or not field.repeats:
        return None
    match field.transform.get("function") if isinstance(field.transform, dict) else None:
        case "{content}":
            return "name", "arguments"
        case {"name": str(name), "arguments": str(arguments)}:
            keys = [re.fullmatch(r"\{content\.(\w+)\}", place) for place in (name, arguments)]
            return (keys[0][1], keys[1][1]) if keys[0] and keys[1] else None
        case _:
            return None


def _streams(name: str, field: Field) -> bool:
    """Whether the field contains text that can be streamed."""
    plain = bool(field.opens and field.opens.literals and field.closes and field.closes.literals)
    return plain and _role(name) in ("text", "reasoning")


def _role(name: str) -> Role:
    return ROLES.get(name, "text")


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _decode_call(item: Any) -> TemplateCall:
    """Raises:
    CONTENT_ERRORS: The item is not a call.
    """
    function = item.get("function", item)
    name, arguments = function["name"], function.get("arguments") or {}
    if not isinstance(name, str) or not name or isinstance(name, NumberText):
        raise ValueError("expected a name")
    if isinstance(arguments, str):
        arguments = parse_complete(arguments.strip())
    if not (arguments.startswith("{") if isinstance(arguments, str) else isinstance(arguments, dict)):
        raise ValueError("expected an object of arguments")
    id = item.get("id", "")
    return TemplateCall(name, arguments, id if isinstance(id, str) else "")


def _typed(value: Any, types: frozenset[str]) -> JsonText:
    is_text = isinstance(value, str) and not isinstance(value, NumberText)
    return as_json(value, types) if is_text and types != ALL else to_json(value)
