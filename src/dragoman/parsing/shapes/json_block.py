"""Blocks of one or more calls, each one JSON object.

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "ping", "arguments": {}}]

A block begins with a marker and contains an object, several, or a JSON array of them; it ends with a closing marker or
with the JSON itself. Also accepted: with or without an array or commas, and one surplus closing brace. From the first
text that is not a call on, the block is text.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Unpack

from dragoman.parsing.define_format import FormatFields, json_format
from dragoman.parsing.format import THINK, Format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.json_object import SEPARATORS, JsonCallKeys, Outcome, read_json_call, skip_unknown_call
from dragoman.parsing.sink import ReadCall, ToolCallSink
from dragoman.parsing.untagged.code_fence import FENCE
from dragoman.text.scanner import Parser, Scanner

KEYS: Final = JsonCallKeys()


@dataclass(frozen=True, slots=True)
class JsonBlock:
    """How such a block is read. An opener that ends in `[` has opened the array."""

    keys: JsonCallKeys
    closer: str = ""
    """The end of the block; "" if the JSON itself ends it."""
    tagged: bool = True
    """True if a marker opened the block; without one, other JSON is the model's answer
    (`parsing/shapes/json_object.py`)."""
    may_stay_open: bool = False
    """True if the closer is optional."""

    def __post_init__(self) -> None:
        # White space before the closer is skipped when it is read.
        object.__setattr__(self, "closer", self.closer.lstrip())

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if a call came last. Other text is passed through unchanged."""
        s.start_capture(s.skipped_space + opener)
        listed = opener.endswith("[") or bool((yield from s.literal("[", after_space=True)))
        if listed:
            if opener and self.tagged and (yield from s.literal("]", after_space=True)):
                return (yield from self._empty(s, sink))
            sink.set_in_list(True)
        s.calls_in_array = listed
        text_last = yield from self._calls(s, sink, listed)
        s.stop_capture()
        s.calls_in_array = False
        if not s.truncated:
            sink.set_in_list(False)
        return not text_last

    def _empty(self, s: Scanner, sink: ToolCallSink) -> Parser[bool]:
        """Drops an empty list of calls."""
        if self.closer:
            yield from s.literal(self.closer, after_space=True)
        sink.warn("empty_call_section", "dropped a list with no call in it", s.captured())
        s.stop_capture()
        return True

    def _calls(self, s: Scanner, sink: ToolCallSink, listed: bool) -> Parser[bool]:
        """Reads calls in sequence and the end of the block. Returns True if text came last."""
        while True:
            yield from s.skip_space()
            outcome = yield from read_json_call(s, sink, self.keys, self.tagged, reads_unknown=self.tagged or listed)
            if outcome is Outcome.UNKNOWN and (yield from skip_unknown_call(s, sink)):
                continue
            if outcome is not Outcome.COMPLETE:
                return _no_call(s, sink, outcome, self.tagged)
            if (yield from s.literal("}", after_space=True)):
                sink.warn("stray_closing_tag", "dropped } that closes nothing", "}")
            s.start_capture()
            comma = yield from s.literal(*SEPARATORS, after_space=True)
            if (yield from s.peek(after_space=True)) != "{":
                return (yield from self._leave(s, sink, listed, bool(comma)))

    def _leave(self, s: Scanner, sink: ToolCallSink, listed: bool, comma: bool) -> Parser[bool]:
        """Reads the end of the block. Returns True if text came last."""
        ended = listed and (yield from s.literal("]", after_space=True))
        if ended and (yield from s.literal("]", after_space=True)):
            sink.warn("stray_closing_tag", "dropped ] that closes nothing", "]")
        closed = self.closer and (yield from s.literal(self.closer, after_space=True))
        if ended or closed:
            sink.set_in_list(False)
        expected = "" if self.may_stay_open or closed else self.closer
        if listed and not (ended or closed):
            expected = "]"
        if s.consume_truncated(expected or ("" if closed else self.closer)):
            return False
        if expected:
            sink.warn("missing_closing_tag", f"expected {expected} after the call")
        if comma and not (ended or closed):
            sink.text(s.captured())
            return True
        return False


def with_json_fallback(read: ReadCall, closer: str) -> ReadCall:
    """Returns a reader of a call, or of JSON instead: models that were trained on both forms mix them up."""
    in_json = JsonBlock(KEYS, closer).read

    def read_either(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        is_json = (yield from s.peek(after_space=True)) in ("{", "[")
        return (yield from (in_json if is_json else read)(s, sink, opener))

    return read_either


def _no_call(s: Scanner, sink: ToolCallSink, outcome: Outcome, tagged: bool) -> bool:
    if outcome is Outcome.NOT_A_CALL and tagged and s.consume_truncated(""):
        sink.warn("truncated_call", "the reply was cut off before the call had a name", s.captured())
    elif outcome is not Outcome.CUT_OFF:
        sink.text(s.captured())
    return True


def _no_id(_: str) -> tuple[str, str]:
    return "", ""


def _object_wrapper(
    keys: JsonCallKeys, call: tuple[str, str], write_id: Callable[[str], tuple[str, str]]
) -> Callable[[str, str], tuple[str, str]]:
    def call_wrapper(tool: str, id: str) -> tuple[str, str]:
        first, last = write_id(id)
        named = json.dumps(tool, ensure_ascii=False)
        if not keys.name_is_key:
            named = f"{json.dumps(keys.name[0])}: {named}, {json.dumps(keys.arguments[0])}"
        return f"{call[0]}{{{first}{named}: ", f"{last}}}{call[1]}"

    return call_wrapper


def _json_markers(markup: Markup, blocks: Mapping[str, str]) -> tuple[str, ...]:
    pairs = (*blocks.items(), *markup.reasoning_tags.items(), *markup.answer_wrappers.items())
    # Without line breaks: another line of the prompt may follow a marker directly.
    marks = [mark.strip("\n") for pair in pairs for mark in pair]
    unique = dict.fromkeys((*marks, *markup.ignored_wrappers, *markup.result_markers))
    return tuple(mark for mark in unique if mark not in ("", FENCE))


def json_calls_format(
    *,
    blocks: Mapping[str, str],
    may_stay_open: bool = False,
    keys: JsonCallKeys = KEYS,
    section: tuple[str, str] = ("", ""),
    call: tuple[str, str] = ("", ""),
    separator: str = ", ",
    write_id: Callable[[str], tuple[str, str]] = _no_id,
    reasoning_tags: Mapping[str, str] = THINK,
    answer_wrappers: Mapping[str, str] = {},
    ignored_wrappers: tuple[str, ...] = (),
    result_markers: tuple[str, ...] = (),
    keep_whitespace: bool = False,
    untagged_calls: Mapping[str, ReadCall] = {},
    other: Mapping[str, ReadCall] = {},
    opener: str = "",
    **fields: Unpack[FormatFields],
) -> Format:
    """Returns a format of such blocks.

    Args:
        blocks: Closing marker of a block by its opening marker; the format's own pair comes first.
        may_stay_open: Whether the closing marker is optional.
        keys: The members of a call.
        section: Text written around all calls.
        call: Text written around each call.
        separator: Text written between two calls.
        write_id: Returns the members of an object before the name and after the arguments, for a call's id.
        reasoning_tags: Closing marker of reasoning by its opening marker.
        answer_wrappers: Closing marker of the answer by its opening marker.
        ignored_wrappers: Markers around an answer without a meaning of their own.
        result_markers: Markers of tool results in the prompt.
        keep_whitespace: Whether white space next to a marker is the model's own text.
        untagged_calls: Readers of calls without an opener, by the first character of a reply.
        other: Readers of other shapes of calls, by opener.
        opener: The text that begins the first of several calls; by default the first opening marker of `blocks`.
        fields: See `FormatFields`.
    """
    readers = {start: JsonBlock(keys, end, may_stay_open=may_stay_open).read for start, end in blocks.items()}
    markup = Markup(
        calls={**readers, **other},
        reasoning_tags=reasoning_tags,
        closers=tuple(dict.fromkeys(filter(None, blocks.values()))),
        result_markers=result_markers,
        keep_whitespace=keep_whitespace,
        answer_wrappers=answer_wrappers,
        ignored_wrappers=ignored_wrappers,
        untagged_calls=untagged_calls,
    )
    return json_format(
        read=markup,
        call_wrapper=_object_wrapper(keys, call, write_id),
        opener=opener or next(iter(blocks)),
        markers=_json_markers(markup, blocks),
        section=section,
        separator=separator,
        **fields,
    )
