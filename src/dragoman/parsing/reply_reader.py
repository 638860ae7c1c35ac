"""Runs a format's reader: model text in, events out.

    reader = ReplyReader(formats.get("hermes"), tools, new_id=new_id)
    for piece in pieces:
        for event in reader.feed(piece): ...
    for event in reader.close("stop"): ...

To read a whole reply at once, as text and calls (core/collect.py):

    events = [*reader.feed(text), *reader.close("stop")]
    reply = collect([Start("1", "some-model", 0), *events, Finish("stop")])

`feed` returns all events that the text so far determines; the joined events do not depend on how the text was split.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.core import events as ev
from dragoman.core.errors import UsageError, quote
from dragoman.core.events import AnyEvent, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.identifiers import CALL_ID, NewId
from dragoman.core.messages import Tool
from dragoman.core.tool_name_match import STEPS as NAMES
from dragoman.core.tool_name_match import ToolNames
from dragoman.parsing.buffered_calls import BufferedCalls
from dragoman.parsing.control_token_mask import ControlTokenMask, UnmaskingSink
from dragoman.parsing.format import Format
from dragoman.parsing.reasoning_draft import ReasoningDraft
from dragoman.parsing.sink import ToolCallSink
from dragoman.schema.argument_types import Schema, emit_escaped, escape_for_string
from dragoman.text.json_repairs import REPAIRS, repair_warning
from dragoman.text.scanner import FastPath, Scanner, discard

_NO_FAST_PATH: Final = FastPath(re.compile("").match, discard, ())
"""No fast path: the format's reader has to see each piece."""
MAX_SKIPPED_CHUNKS: Final = 1024
"""Pieces that may bypass the scanner before they are reported to it, so that they do not accumulate."""
READER_REPAIRS: Final = frozenset((*NAMES, *REPAIRS))
"""Names of all repairs that are made while a call is read."""
ReaderBuffering: TypeAlias = Literal["off", "all"]
MakeEvent: TypeAlias = Callable[[str], AnyEvent]


class ReplyReader:
    """Reads one reply of a model.

    Args:
        format: the model's format.
        tools: the offered tools; a call of any other name stays text, with a warning. None: any name is accepted.
        new_id: generates the ids of calls.
        prompt_suffix: the part of the reply that the prompt already contains, such as `<think>`. It gives no events,
            except those of a call that it leaves open.
        lenient: also accepts calls without the format's tags, if they name an offered tool.
        used_ids: call ids already used in the conversation; a repeated id is replaced.
        buffering: "off" emits arguments as they arrive; "all" emits only complete calls, and the warning
            `incomplete_call` with the text of any other.
        control: the texts of the model's control tokens, for an engine that passes `plain` to `feed`.
        enabled_repairs: repairs of names (core/tool_name_match.py) and of JSON (text/json_repairs.py). A call's end
            names the repairs made; the warning `json_repaired` contains the original JSON.

    Raises:
        UsageError: an argument is invalid, or text was fed after the end.
    """

    def __init__(
        self,
        format: Format,
        tools: Iterable[Tool] | None,
        *,
        new_id: NewId,
        prompt_suffix: str = "",
        lenient: bool = False,
        used_ids: Iterable[str] = (),
        buffering: ReaderBuffering = "off",
        control: Iterable[str] = (),
        enabled_repairs: Collection[str] = READER_REPAIRS,
    ) -> None:
        self._scanner = Scanner(enabled_repairs)
        _check(format, prompt_suffix, buffering)
        known = _callable_tools(tools)
        names = None if known is None else ToolNames(known, [step for step in NAMES if step in enabled_repairs])
        self._sink = _EventSink(known, names, new_id, lenient, set(used_ids), self._scanner, len(prompt_suffix))
        self._mask = ControlTokenMask(control) if control else None
        sink: ToolCallSink = self._sink
        if self._mask:
            sink, self._sink.unmask = UnmaskingSink(self._sink, self._mask), self._mask.unmask
        self._run = format.read(self._scanner, sink)
        self._ended = False
        self._fast_path = _NO_FAST_PATH
        self._find_stop = _NO_FAST_PATH.find_stop
        self._event: MakeEvent | None = None
        self._quotes = False  # the event contains the inside of a JSON string
        self._skipped: list[str] = []
        self._waiting = ""  # text that is undecided until more arrives
        self._scanner.feed(prompt_suffix)
        self._resume()
        self._sink.begin(self._sink.drain(), BufferedCalls() if buffering == "all" else None)

    @property
    def finished(self) -> bool:
        """True once further text cannot produce events: end the generation."""
        return self._sink.finished

    def feed(self, text: str, *, plain: bool = False) -> list[AnyEvent]:
        """Returns the events that this piece of text determines.

        `plain`: the text consists of ordinary tokens, so text in it that looks like a control token, or the beginning
        of one, is not one. Feed control tokens without `plain`.
        """
        try:
            whole = self._waiting + text if self._waiting else text
            stop = self._find_stop(whole)
        except TypeError:
            raise feed_error(text) from None
        if stop is None and self._event and text and not plain:
            self._skipped.append(whole)
            if len(self._skipped) == MAX_SKIPPED_CHUNKS:
                self._flush_skipped()
            self._waiting = ""
            return [self._event(escape_for_string(whole) if self._quotes else whole)]
        at = len(whole) if stop is None else self._fast_path.deferrable_from(whole, stop)
        if at < 0 or plain:
            return self._parse(text, plain)
        self._waiting = whole[at:]
        return self._pass_by(whole[:at])

    def _pass_by(self, text: str) -> list[AnyEvent]:
        """The events of text that the format's reader need not see."""
        if not text:
            return []
        self._skipped.append(text)
        if self._event:
            return [self._event(escape_for_string(text) if self._quotes else text)]
        self._flush_skipped()
        self._fast_path.emit(text)
        return self._sink.drain()

    def _parse(self, text: str, plain: bool) -> list[AnyEvent]:
        if self._scanner.closed or not isinstance(text, str):
            raise feed_error(text)
        if self._mask:
            text = self._mask.feed(text, plain)
        elif plain:
            raise UsageError("expected `control`, the texts of the control tokens, to tell plain text from them")
        if not self._ended:
            self._flush_skipped()
            self._scanner.feed(self._waiting + text)
            self._waiting = ""
            self._resume()
        return self._sink.drain()

    def close(self, finish_reason: Literal["stop", "length"] = "stop") -> list[AnyEvent]:
        """Returns the events that the end of the text determines; call it once, last.

        `finish_reason` "length" means that a token limit ended the text, so an open call stays incomplete.
        """
        if self._scanner.closed:
            raise UsageError("closed already: close() is called once, last")
        if finish_reason not in ("stop", "length"):
            raise UsageError(f"expected 'stop' or 'length', got {finish_reason!r} - at finish_reason")
        self._flush_skipped()
        if self._waiting:
            self._scanner.feed(self._waiting)
        if self._mask and not self._ended:
            self._scanner.feed(self._mask.close())
        self._scanner.closed = True
        self._scanner.stopped_by_model = finish_reason == "stop"
        self._resume()
        return self._sink.drain() + self._sink.close()

    def _flush_skipped(self) -> None:
        """Reports the pieces that bypassed the scanner to it."""
        if self._skipped:
            self._scanner.skip("".join(self._skipped))
            self._skipped.clear()

    def _resume(self) -> None:
        """Runs the format's reader on the new text."""
        self._fast_path, self._find_stop, self._event = _NO_FAST_PATH, _NO_FAST_PATH.find_stop, None
        if self._ended:
            return
        try:
            plain = next(self._run)
        except StopIteration:
            plain, self._ended = None, True
        self._ended |= self.finished
        if plain and not (self._ended or self._mask):
            self._fast_path, self._find_stop = plain, plain.find_stop
            self._event, self._quotes = self._sink.event_of(plain.emit)


class _EventSink:
    """Creates events: numbers calls, resolves names, merges adjacent text."""

    def __init__(
        self,
        tools: Mapping[str, Tool] | None,
        names: ToolNames | None,
        new_id: NewId,
        lenient: bool,
        used_ids: set[str],
        scanner: Scanner,
        prompt_chars: int,
    ) -> None:
        self._tools = tools
        self._names = names
        self._matched_name = ("", "")
        """The tool that a different spelling was matched to last, and the matching step."""
        self._repairs: list[str] = []
        """Repairs made in the open call."""
        self._new_id = new_id
        self._used_ids = used_ids
        self._scanner = scanner
        self._prompt_chars = prompt_chars  # 0 once all of them have been read
        self._buffered_calls: BufferedCalls | None = None
        self._in_list = False  # as the prompt leaves it
        self._out: list[AnyEvent] = []
        self._pieces: list[str] = []
        self._kind: Literal["text", "reasoning", "arguments"] = "text"
        self._index = -1
        self.lenient = lenient
        self.unmask: Callable[[str], str] = str
        self.calls = 0
        self.finished = False
        self.current_draft: ReasoningDraft | None = None

    def begin(self, prompt: list[AnyEvent], buffered_calls: BufferedCalls | None) -> None:
        """Marks the start of the reply. Of the prompt's events, only those of a call that it leaves open are kept."""
        if self.current_draft:
            self.settle_draft(meant=True)
            prompt += self.drain()
        last = max((i for i, e in enumerate(prompt) if isinstance(e, ToolCallStart)), default=len(prompt))
        end_unclosed_call = not any(isinstance(e, ToolCallEnd | ev.ToolCallIncomplete) for e in prompt[last:])
        self._buffered_calls, self._index = buffered_calls, -1
        self.set_in_list(self._in_list)
        for event in prompt[last:] if end_unclosed_call else ():
            if isinstance(event, ToolCallStart | ToolCallDelta):
                self._index = 0
                self._put(msgspec.structs.replace(event, index=0))

    def text(self, text: str) -> None:
        if self.current_draft and text.strip():
            self.current_draft.text_after_call = True
        self._add("text", self._without_prompt(text) if self._prompt_chars else text)

    def reasoning(self, text: str) -> None:
        self._add("reasoning", self._without_prompt(text) if self._prompt_chars else text)

    def arguments(self, text: str) -> None:
        if self._kind != "arguments":
            self._flush()
            self._kind = "arguments"
        self._pieces.append(text)

    def resolve(self, name: str) -> str | None:
        """Returns the offered tool that is meant (core/tool_name_match.py)."""
        if self._names is None:
            return name or None
        found = self._names.resolve(name)
        self._matched_name = (found.name, found.step) if found else ("", "")
        return found.name if found else None

    def needs_arguments(self, name: str) -> bool:
        """Returns True if the schema requires arguments, or the tool is not known."""
        if self._tools is None:
            return True
        try:
            return bool(msgspec.json.decode(self._tools[name].parameters, type=_Schema).required)
        except (msgspec.DecodeError, RecursionError):
            return True

    def schema(self, name: str) -> Schema:
        return Schema(self._tools[name].parameters if self._tools else "{}")

    def start(self, name: str, id: str = "") -> None:
        id = self._reserve_id(id) or self._reserve_id(f"call_{self._new_id()}")
        if self.current_draft:
            self.current_draft.text_after_call = False
        self._index += 1
        self.calls += 1
        meant, step = self._matched_name
        self._repairs = [step] if step and meant == name else []
        self._send(ToolCallStart(self._index, id, name))

    def end(self, id: str = "") -> None:
        slips = self._scanner.repairs
        self._send(ToolCallEnd(self._index, (*self._repairs, *slips), id=self._reserve_id(id)))
        if slips:
            self._send(repair_warning(slips, self.unmask(self._scanner.captured())))
            slips.clear()

    def _reserve_id(self, id: str) -> str:
        """Returns the id and reserves it; "" if APIs reject it or another call has it."""
        if not CALL_ID.fullmatch(id) or id in self._used_ids:
            return ""
        self._used_ids.add(id)
        if self.current_draft:
            self.current_draft.ids.append(id)
        return id

    def incomplete(self, raw: str) -> None:
        if self.current_draft:
            self.current_draft.broken = True
        self._send(ev.ToolCallIncomplete(self._index, raw))

    def set_in_list(self, open: bool) -> None:
        self._in_list = open
        if self._buffered_calls:
            self._flush()
            if self.current_draft:
                self.current_draft.buffered.append(partial(self._list, open))
            else:
                self._list(open)

    def begin_draft(self, closer: str) -> None:
        self._flush()
        self.current_draft = ReasoningDraft(closer, self._index, self.calls)

    def settle_draft(self, meant: bool) -> None:
        self._flush()
        draft, self.current_draft = self.current_draft, None
        if draft and meant:
            for each in draft.buffered:
                each()
        elif draft:
            self._index, self.calls = draft.index, draft.calls
            self._used_ids.difference_update(draft.ids)

    def end_reply(self, code: str, message: str, raw: str = "") -> None:
        self.warn(code, message, raw)
        self.finished = True

    def warn(self, code: str, message: str, raw: str = "") -> None:
        self._send(ev.Notice(code, message, raw))

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """Ignored; parsing/trace.py records notes."""

    def event_of(self, emit: object) -> tuple[MakeEvent | None, bool]:
        """Returns a constructor of the one event for a piece given to this method, and whether it is within a JSON
        string."""
        if self._buffered_calls or self._prompt_chars or self.current_draft:
            return None, False
        quotes = isinstance(emit, partial) and emit.func is emit_escaped and emit.args == (self.arguments,)
        if quotes or emit == self.arguments:
            return partial(ToolCallDelta, self._index), quotes
        return TextDelta if emit == self.text else ReasoningDelta if emit == self.reasoning else None, False

    def drain(self) -> list[AnyEvent]:
        if self._pieces:
            self._flush()
        out, self._out = self._out, []
        return out

    def close(self) -> list[AnyEvent]:
        """Returns the events that only the end of the reply determines."""
        return self._buffered_calls.close() if self._buffered_calls else []

    def _without_prompt(self, text: str) -> str:
        """Returns the text without the part that the prompt contains; the text ends at the scanner's position."""
        start = self._scanner.offset - len(text)
        rest = text[max(0, self._prompt_chars - start) :]
        if rest:
            self._prompt_chars = 0
        return rest

    def _add(self, kind: Literal["text", "reasoning", "arguments"], text: str) -> None:
        if kind != self._kind:
            self._flush()
            self._kind = kind
        self._pieces.append(text)

    def _send(self, event: AnyEvent) -> None:
        self._flush()
        self._put(event)

    def _list(self, open: bool) -> None:
        if self._buffered_calls:
            self._out += self._buffered_calls.set_in_list(open)

    def _put(self, event: AnyEvent) -> None:
        if self.current_draft:
            self.current_draft.buffered.append(partial(self._emit, event))
        else:
            self._emit(event)

    def _emit(self, event: AnyEvent) -> None:
        if self._buffered_calls:
            self._out += self._buffered_calls.feed(event)
        else:
            self._out.append(event)

    def _flush(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        if not text:
            return
        match self._kind:
            case "arguments":
                self._put(ToolCallDelta(self._index, text))
            case "text":
                self._put(TextDelta(text))
            case "reasoning":
                self._put(ReasoningDelta(text))


def _check(format: object, prompt_suffix: object, buffering: object) -> None:
    if not isinstance(format, Format):
        hint = f"; take dragoman.formats.get({quote(format)})" if isinstance(format, str) else ""
        raise UsageError(f"expected a Format, got {type(format).__name__}{hint} - at format")
    if not isinstance(prompt_suffix, str):
        raise UsageError(f"expected str, got {type(prompt_suffix).__name__} - at prompt_suffix")
    if buffering not in ("off", "all"):
        raise UsageError(f"expected 'off' or 'all', got {buffering!r} - at buffering")


def feed_error(text: object) -> UsageError:
    """Returns the error for text that a reader cannot accept."""
    if isinstance(text, str):
        return UsageError("closed already: each reply needs a reader of its own")
    hint = (
        "; decode it, with codecs.getincrementaldecoder, as a character may be cut" if isinstance(text, bytes) else ""
    )
    return UsageError(f"expected str, got {type(text).__name__}{hint} - at text")


def _callable_tools(tools: Iterable[Tool] | None) -> dict[str, Tool] | None:
    """Returns the tools that the client can run, by name."""
    if tools is None:
        return None
    listed: list[object] = [tools] if isinstance(tools, Tool | str) or not isinstance(tools, Iterable) else [*tools]
    offered = {}
    for i, tool in enumerate(listed):
        if not isinstance(tool, Tool):
            hint = "dragoman.ToolCallReader takes them as APIs have them"
            raise UsageError(f"expected a Tool, got {type(tool).__name__}; {hint} - at tools[{i}]")
        if tool.kind == "function":
            offered[tool.name] = tool
    return offered


class _Schema(msgspec.Struct):
    required: list[str] = []
