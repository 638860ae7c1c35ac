"""Makes events of what a format's reader has read."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from dragoman.core import events as ev
from dragoman.core.events import AnyEvent, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.identifiers import CALL_ID, NewId
from dragoman.core.messages import Tool
from dragoman.core.tool_name_match import STEPS as NAME_REPAIRS
from dragoman.core.tool_name_match import ToolNames
from dragoman.parsing.buffered_calls import BufferedCalls
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reasoning_draft import ReasoningDraft
from dragoman.schema.argument_types import Schema, emit_escaped
from dragoman.text.json_repairs import repair_warning
from dragoman.text.scanner import Scanner

MakeEvent: TypeAlias = Callable[[str], AnyEvent]


class EventSink:
    """Creates events: numbers calls, resolves names, merges adjacent text."""

    def __init__(
        self, tools: Mapping[str, Tool] | None, scanner: Scanner, new_id: NewId, options: ReaderOptions
    ) -> None:
        """Creates the sink of one reply.

        Args:
            tools: The offered tools by name; None: any name is accepted.
            scanner: The scanner that the format's reader reads from.
            new_id: Generates the ids of calls.
            options: The options of the reader.
        """
        steps = [step for step in NAME_REPAIRS if step in options.enabled_repairs]
        self._tools = tools
        self._names = None if tools is None else ToolNames(tools, steps)
        self._matched_name = ("", "")
        """The tool that a different spelling was matched to last, and the matching step."""
        self._repairs: list[str] = []
        """Repairs made in the open call."""
        self._new_id = new_id
        self._used_ids = set(options.used_ids)
        self._scanner = scanner
        self._prompt_chars = len(options.prompt_suffix)  # 0 once all of them have been read
        self._buffered_calls: BufferedCalls | None = None
        self._in_list = False  # as the prompt leaves it
        self._out: list[AnyEvent] = []
        self._pieces: list[str] = []
        self._kind: Literal["text", "reasoning", "arguments"] = "text"
        self._index = -1
        self.lenient = options.lenient
        self.unmask: Callable[[str], str] = str
        self.calls = 0
        self.finished = False
        self.current_draft: ReasoningDraft | None = None

    def begin(self, prompt: list[AnyEvent], buffered_calls: BufferedCalls | None) -> None:
        """Marks the start of the reply. Of the prompt's events, only those of a call that it leaves open are kept."""
        if self.current_draft:
            self.settle_draft(is_reply=True)
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
        """Adds answer text."""
        if self.current_draft and text.strip():
            self.current_draft.text_after_call = True
        self._add("text", self._without_prompt(text) if self._prompt_chars else text)

    def reasoning(self, text: str) -> None:
        """Adds reasoning text."""
        self._add("reasoning", self._without_prompt(text) if self._prompt_chars else text)

    def arguments(self, text: str) -> None:
        """Adds a piece of the open call's arguments, as JSON text."""
        if self._kind != "arguments":
            self._flush()
            self._kind = "arguments"
        self._pieces.append(text)

    def resolve(self, name: str) -> str | None:
        """Returns the offered tool that is meant (core/tool_name_match.py)."""
        if self._names is None:
            return name or None
        match = self._names.resolve(name)
        self._matched_name = (match.name, match.step) if match else ("", "")
        return match.name if match else None

    def needs_arguments(self, name: str) -> bool:
        """Returns True if the schema requires arguments, or the tool is not known."""
        if self._tools is None:
            return True
        try:
            return bool(msgspec.json.decode(self._tools[name].parameters, type=_Schema).required)
        except (msgspec.DecodeError, RecursionError):
            return True

    def schema(self, name: str) -> Schema:
        """Returns the JSON Schema of the tool's arguments; it accepts anything if no tools are known."""
        return Schema(self._tools[name].parameters if self._tools else "{}")

    def start(self, name: str, id: str = "") -> None:
        """Starts a call; an id that is missing, invalid or already used is replaced by a new one."""
        id = self._reserve_id(id) or self._reserve_id(f"call_{self._new_id()}")
        if self.current_draft:
            self.current_draft.text_after_call = False
        self._index += 1
        self.calls += 1
        matched_name, step = self._matched_name
        self._repairs = [step] if step and matched_name == name else []
        self._send(ToolCallStart(self._index, id, name))

    def end(self, id: str = "") -> None:
        """Ends the open call with the repairs made in it, and warns about JSON that was repaired."""
        repairs = self._scanner.repairs
        self._send(ToolCallEnd(self._index, (*self._repairs, *repairs), id=self._reserve_id(id)))
        if repairs:
            self._send(repair_warning(repairs, self.unmask(self._scanner.captured())))
            repairs.clear()

    def _reserve_id(self, id: str) -> str:
        """Returns the id and reserves it; "" if APIs reject it or another call has it."""
        if not CALL_ID.fullmatch(id) or id in self._used_ids:
            return ""
        self._used_ids.add(id)
        if self.current_draft:
            self.current_draft.ids.append(id)
        return id

    def incomplete(self, raw: str) -> None:
        """Ends the open call as incomplete; `raw` is its text."""
        if self.current_draft:
            self.current_draft.broken = True
        self._send(ev.ToolCallIncomplete(self._index, raw))

    def set_in_list(self, open: bool) -> None:
        """Reports that a list of calls begins or ends, which matters if complete calls are buffered."""
        self._in_list = open
        if self._buffered_calls:
            self._flush()
            if self.current_draft:
                self.current_draft.buffered.append(partial(self._list, open))
            else:
                self._list(open)

    def begin_draft(self, closer: str) -> None:
        """Opens a draft: all events from here on are buffered."""
        self._flush()
        self.current_draft = ReasoningDraft(closer, self._index, self.calls)

    def settle_draft(self, is_reply: bool) -> None:
        """Closes the draft: emits its events if `is_reply`, else discards them and releases its ids."""
        self._flush()
        draft, self.current_draft = self.current_draft, None
        if draft and is_reply:
            for each in draft.buffered:
                each()
        elif draft:
            self._index, self.calls = draft.index, draft.calls
            self._used_ids.difference_update(draft.ids)

    def end_reply(self, code: str, message: str, raw: str = "") -> None:
        """Warns, and marks the reply as finished."""
        self.warn(code, message, raw)
        self.finished = True

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Emits a warning."""
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
        """Returns the events since the last call of this method."""
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


class _Schema(msgspec.Struct):
    required: list[str] = []
