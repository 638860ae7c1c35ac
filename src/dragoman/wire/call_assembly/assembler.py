"""Assembles tool calls from the chunks of an upstream server's response, and emits the response's events in order.

    out = ToolCallAssembler(ExchangeContext("1", 0, new_id), "some-model", lambda: ToolNameMap(["weather"], NAME_FORM))
    out.start()
    out.call(0, "call_1", "weather", '{"city":')
    out.call(0, "", "", '"Bern"}')
    out.finish("tool_calls")
    out.drain()                        # Start, ToolCallStart, two deltas, ToolCallEnd, Finish

Servers send the chunks of calls in many ways: interleaved, without an index or an id, all under one index, the name in
chunks or repeated in each, arguments before the name, the whole call twice. Events never overlap, so chunks that arrive
while a call is open wait until the call's JSON has ended; all other chunks are emitted immediately.

- A chunk belongs to the call of its index, else to the call of its id, else to the last call.
- A chunk with a name begins another call if the current call is complete, unless it has the same id, or no id and the
  same content. If the current call is not complete, the chunk begins another call if its name is a different one and
  not a chunk of the current name.
- A name is complete if it equals an offered tool's name and is not the beginning of another one's, or if arguments
  have arrived and it is not merely the beginning of a tool's name. A chunk that repeats the name is dropped.
- Missing arguments and `null` become `{}`; an object inside a JSON string or a code fence is extracted.
- JSON errors in arguments are repaired (text/json_repairs.py).
- An id is the server's own, in characters that every API accepts; a missing or repeated one is generated.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError, UpstreamError, quote
from dragoman.core.events import (
    AnyEvent,
    Detail,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
    VendorBlock,
)
from dragoman.core.identifiers import ANY_STRING, ToolNameMap, valid_call_id
from dragoman.core.messages import FinishReason, Usage
from dragoman.core.response_details import SERVICE
from dragoman.text.json_repairs import ALL_REPAIRS, repair_warning
from dragoman.text.surrogates import SurrogateJoiner
from dragoman.text.unwrap_arguments import unwrap_arguments
from dragoman.wire.call_assembly.partial_call import PartialCall

_ONE_LINE: Final = str.maketrans("\r\n", "  ")
"""Replaces line breaks, for JSON in a line of an SSE stream."""


class ToolCallAssembler:
    """Assembles one response; feed it the server's chunks and `drain` the events."""

    __slots__ = (
        *(
            "_by_id",
            "_by_key",
            "_facts",
            "_last",
            "_reported_dropped",
            "_enabled_repairs",
            "_model",
            "_nameless",
            "_out",
        ),
        *("_queue", "_reported_broken", "_names", "_tools", "_context", "_list_names", "_list_used", "_used"),
        *("calls", "halves", "phase"),
    )

    def __init__(
        self,
        context: ExchangeContext,
        model: str,
        names: Callable[[], ToolNameMap] = lambda: ToolNameMap((), ANY_STRING),
        *,
        used: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Creates an assembler.

        Args:
            context: Id, time and id generator of the exchange.
            model: The client's name of the model.
            names: Returns the names of the offered tools; called at the first call.
            used: Returns the call ids that must not be used again; called at the first call.
        """
        self.phase = "new"
        """`new`, `open` or `ended`; chunks after the end are ignored."""
        self.calls = 0
        """Number of calls announced by ToolCallStart."""
        self._context, self._model = context, model
        self._out: list[AnyEvent] = []
        self._queue: deque[PartialCall | AnyEvent] = deque()
        self._by_key: dict[int, PartialCall] = {}
        self._by_id: dict[str, PartialCall] = {}
        self._last: PartialCall | None = None
        self._list_used = used
        self._used: set[str] = set()
        self._reported_dropped: set[str] = set()
        self._list_names = names
        self._names: ToolNameMap | None = None
        self._tools: Collection[str] = ()
        disabled = context.disabled_repairs
        self._enabled_repairs = ALL_REPAIRS.difference(disabled) if disabled else ALL_REPAIRS
        self.halves = SurrogateJoiner()
        """Joins characters that the server split between two chunks."""
        self._facts: dict[str, str] = {}
        self._reported_broken = False
        self._nameless = ""
        """The arguments of a call that has no name."""

    def drain(self) -> list[AnyEvent]:
        """Returns the events since the last call of `drain`."""
        events, self._out = self._out, []
        return events

    def start(self, input_tokens: int = 0) -> None:
        """Begins the response; called implicitly by all other methods, and repeated calls have no effect."""
        if self.phase == "new":
            self.phase = "open"
            self._out.append(Start(self._context.id, self._model, self._context.created, input_tokens))

    def text(self, text: str) -> None:
        """Adds response text."""
        if self.halves.has_marks:
            text = self._joined("text", text)
        if text and self.phase == "open" and not self._queue:  # the most frequent case
            self._out.append(TextDelta(text))
        else:
            self._emit(TextDelta(text), text)

    def reasoning(self, text: str, signature: str = "", redacted: str = "") -> None:
        """Adds a piece of reasoning."""
        if self.halves.has_marks:
            text = self._joined("reasoning", text)
        self._emit(ReasoningDelta(text, signature, redacted), text or signature or redacted)

    def vendor(self, dialect: str, type: str, json: str) -> None:
        """Adds a part that only this API has."""
        json = self.halves.replace_marks(json) if self.halves.has_marks else json
        self._emit(VendorBlock(dialect, type, json), json)

    def detail(self, name: str, json: str, dialect: str = "") -> None:
        """Adds a detail other than text and calls; a repeated value of the same detail is ignored."""
        if "\n" in json or "\r" in json:
            json = json.translate(_ONE_LINE)
        if name in SERVICE and self._facts.get(name) == json:
            return
        self._facts[name] = json
        self._emit(
            Detail(name, self.halves.replace_marks(json) if self.halves.has_marks else json, dialect), json or name
        )

    def refusal(self, text: str) -> None:
        """Adds refusal text."""
        if self.halves.has_marks:
            text = self._joined("refusal", text)
        self._emit(RefusalDelta(text), text)

    def usage(self, usage: Usage) -> None:
        """Sets the token counts so far."""
        self.start()
        self._out.append(UsageUpdate(usage))

    def warn(self, code: str, message: str, raw: str = "", detail: str = "") -> None:
        """Adds a notice about a deviation from the API.

        Args:
            code: The code of the notice.
            message: Its text.
            raw: The text or JSON that it is about.
            detail: Name of the subject, as for `Notice`.
        """
        self.start()
        self._out.append(Notice(code, message, raw, detail))

    def broken(self, message: str) -> None:
        """Adds a notice about broken characters, once per response."""
        if not self._reported_broken:
            self._reported_broken = True
            self.warn("invalid_utf8", message)

    def _joined(self, place: Hashable, text: str) -> str:
        """Returns the text with split characters joined."""
        text = self.halves.join(place, text)
        if self.halves.has_unpaired:
            self.broken("half of a surrogate pair in the answer was read as U+FFFD")
        return text

    def _end_text(self) -> None:
        """Emits text that waits for the second half of its last character."""
        for place, emit in (("reasoning", self.reasoning), ("text", self.text), ("refusal", self.refusal)):
            if left := self.halves.flush(place):
                emit(left)

    def report_dropped(self, what: str) -> None:
        """Reports content that has no event type, once per kind."""
        if what not in self._reported_dropped:
            self._reported_dropped.add(what)
            self.warn("content_dropped", f"{what} of the server's response has no equivalent here", detail=what)

    def call(
        self, key: int | None, id: str, name: str, arguments: str, *, is_new_call: bool = False, named: bool = False
    ) -> None:
        """Adds a chunk of a call; values that the server did not send are empty.

        Args:
            key: Index of the call.
            id: Id of the call.
            name: Name of the tool, or a chunk of it.
            arguments: Chunk of the arguments.
            is_new_call: The chunk is from another call than the chunk before it in the same list.
            named: The name is complete, because this API never splits it.
        """
        self.start()
        if self.halves.has_marks:
            self._end_text()
            id, name = self.halves.replace_marks(id), self.halves.replace_marks(name)
        call = self._find(key, id, name, arguments, is_new_call)
        if not call.named:
            self._name(call, name)
            call.named = call.named or (named and bool(name))
        call.id = call.id or id
        spare = call.feed(self._joined(call, arguments) if self.halves.has_marks else arguments)
        if spare.strip() and call.has_arguments(spare):
            self.warn(
                "duplicate_call_dropped",
                f"the server sent the call of {quote(call.name)} twice; it is made once",
                spare,
            )
        elif spare.strip():
            message = f"text after the complete arguments of {quote(call.name)} was dropped"
            self.warn("extra_arguments", message, spare)
        if call.name and call.raw and not call.named:
            call.named = call.name in self._tools or not self._is_longer_name(call.name)
        self._advance_all()

    def end_call(self, key: int) -> None:
        """Ends the call of this index, by report of the server."""
        if call := self._by_key.pop(key, None):
            call.closed = True

    def finish(self, reason: FinishReason, stop_sequence: str = "") -> None:
        """Ends the response; a call with incomplete arguments becomes incomplete."""
        if self.phase == "ended":
            return
        if self.phase == "new":
            self.start()
        if self.halves.has_marks or self.halves.has_unpaired:
            self._end_text()
            self._joined("text", "")
        if self._queue:
            self._close(cut=reason == "length")
        if not (self.calls or self._context.is_partial) and reason in ("stop", "tool_calls"):
            if self._nameless and (reason == "tool_calls" or self._nameless != "{}"):
                self.fail(UpstreamError("expected a tool call, got one without a name"))
                return
            if reason == "tool_calls":
                self.warn("unknown_finish", "the server ended for tool calls, and sent none")
        self._out.append(Finish(reason, stop_sequence))
        self.phase = "ended"

    def fail(self, error: DragomanError) -> None:
        """Ends the response with an error."""
        if self.phase != "ended":
            self._close(cut=True)
            self._out.append(Failure(error))
            self.phase = "ended"

    def _emit(self, event: AnyEvent, text: str) -> None:
        if text:
            if self.phase == "new":
                self.start()
            if not self._queue:  # the most frequent case
                self._out.append(event)
                return
            self._queue.append(event)
            self._advance_all()

    def _find(self, key: int | None, id: str, name: str, arguments: str, is_new_call: bool) -> PartialCall:
        call = self._by_key.get(key) if key is not None else self._by_id.get(id) if id else None
        if call is None and key is None and not (is_new_call and name):
            call = self._last
        if call is None or (is_new_call and name and call.complete) or self._is_another(call, id, name, arguments):
            if self._names is None:
                self._names = self._list_names()
                self._tools = self._names.offered()
            call = PartialCall(id, self._enabled_repairs)
            self._queue.append(call)
        if key is not None:
            self._by_key[key] = call
        if id:
            self._by_id[id] = call
        self._last = call
        return call

    def _is_another(self, call: PartialCall, id: str, name: str, arguments: str) -> bool:
        """Whether a chunk under the index of this call begins another one."""
        other_id = bool(id and call.id and id != call.id)
        if not name or not call.name:
            return bool(name) and other_id
        if call.complete:
            return id != call.id if id else not (name == call.name and call.has_arguments(arguments))
        if call.named:
            return name != call.name
        return other_id and name != call.name

    def _name(self, call: PartialCall, piece: str) -> None:
        if piece and piece != call.name:
            call.name = piece if call.name and piece.startswith(call.name) else call.name + piece
        call.named = call.name in self._tools and not self._is_longer_name(call.name)

    def _is_longer_name(self, name: str) -> bool:
        return any(tool.startswith(name) and tool != name for tool in self._tools)

    def _close(self, cut: bool) -> None:
        """Emits everything that waits. If the response was `cut` off, so was the last call, unless it is complete."""
        last = self._queue[-1] if self._queue else None
        for waiting in self._queue:
            if isinstance(waiting, PartialCall):
                waiting.closed = True
        while self._queue:
            head = self._queue.popleft()
            if isinstance(head, PartialCall):
                self._end(head, cut=cut and head is last)
            else:
                self._out.append(head)

    def _advance_all(self) -> None:
        """Emits everything that need not wait; a call that the server has closed waits for the next item."""
        while self._queue:
            head = self._queue[0]
            if isinstance(head, PartialCall):
                self._advance(head)
                is_passed = head.closed and len(self._queue) > 1
                if not is_passed and not (head.complete and head.name):
                    return
                self._end(head, cut=False)
            else:
                self._out.append(head)
            self._queue.popleft()

    def _advance(self, call: PartialCall) -> None:
        """Emits ToolCallStart as soon as the name is complete, and the arguments available so far."""
        if call.index is None:
            if not call.named:
                return
            self._announce(call)
        if (text := call.drain()) and call.index is not None:
            self._out.append(ToolCallDelta(call.index, text))

    def _announce(self, call: PartialCall) -> None:
        if not self.calls:
            self._used.update(self._list_used())
        id = valid_call_id(call.id) if call.id else ""
        if not id or id in self._used:
            id = f"call_{self._context.new_id()}"
        self._used.add(id)
        call.index, self.calls = self.calls, self.calls + 1
        self._out.append(ToolCallStart(call.index, id, self._names.back(call.name) if self._names else call.name))

    def _end(self, call: PartialCall, cut: bool) -> None:
        raw = "".join(call.raw)
        if not call.name:
            self._nameless = self._nameless or raw.strip()
            self.warn("unnamed_call", "the server sent a call without a name; it was dropped", raw)
            return
        call.named = True
        self._advance(call)
        assert call.index is not None
        repairs, is_complete = call.repairs, call.complete
        if not (is_complete or cut or call.is_object):
            arguments, repairs, _ = unwrap_arguments(raw, self._enabled_repairs)
            is_complete = bool(arguments)
            self._out += [ToolCallDelta(call.index, arguments)] if is_complete else []
        if is_complete:
            self._out.append(ToolCallEnd(call.index, repairs=repairs))
            self._out += [repair_warning(repairs, raw)] if repairs else []
            return
        self._out.append(ToolCallIncomplete(call.index, raw))
        if call.problem:
            why = f"the arguments of {quote(call.name)} are not a JSON object: {call.problem}"
            self.warn("malformed_arguments", why, raw)
