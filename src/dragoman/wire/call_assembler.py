"""An answer as a server behind sends it, to events in their order.

    out = Assembler(Turn("1", 0, new_id), "some-model", ["weather"])
    out.start()
    out.call(0, "call_1", "weather", '{"city":')
    out.call(0, "", "", '"Bern"}')
    out.finish("tool_calls")
    out.take()                          # Start, ToolCallStart, two deltas, ToolCallEnd, Finish

Servers send the pieces of calls in many ways: interleaved, without an index or an id, under one index, the name in
pieces or again in each, the arguments before it, the whole call a second time. Events never overlap, so what comes
while a call is open waits until the call's JSON has ended; all other pieces go on at once.

- A piece belongs to the call of its index, else to that of its id, else to the last one.
- A named piece begins another call where that call is whole, unless it has the same id, or no id and the same words;
  and where that call is not whole, but is of another name, and no piece of one.
- A name is complete where it is an offered tool's and begins no other, or where arguments have come and it is not
  merely the beginning of a tool's. A piece that repeats it is dropped.
- No arguments, or `null`, are `{}`; an object written in a JSON string, or in a code fence, is taken out of it.
- JSON with slips in it is passed on mended (text/json_repairs.py).
- An id is the server's own, in letters that every API takes; a missing one, or one that a call before had, is made
  here.
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
from dragoman.core.identifiers import legal_id
from dragoman.core.messages import FinishReason, Usage
from dragoman.core.response_details import SERVICE
from dragoman.text.json_repairs import ALL_REPAIRS, repair_warning
from dragoman.text.surrogates import Halves
from dragoman.text.tolerant_json import TolerantJsonStream
from dragoman.text.unwrap_arguments import unwrap_arguments

_ONE_LINE: Final = str.maketrans("\r\n", "  ")
"""JSON as an event of a stream has it."""


class _Call:
    """One call on its way."""

    __slots__ = ("_buf", "_json", "closed", "id", "index", "name", "named", "raw", "streams")

    def __init__(self, id: str, mends: Collection[str]) -> None:
        self.id = id
        """The server's."""
        self.name = ""
        self.named = False
        """The name is complete."""
        self.index: int | None = None
        """Its number, once it has been announced."""
        self.closed = False
        """No more of it comes."""
        self.raw: list[str] = []
        """The arguments as they came."""
        self._json = TolerantJsonStream(mends)
        self._buf = ""
        self.streams: bool | None = None
        """The arguments are an object; None while no character of it has come."""

    @property
    def whole(self) -> bool:
        """The arguments are one whole object."""
        return self._json.done

    @property
    def problem(self) -> str:
        """Why the arguments are no object."""
        return "expected '{'" if self.streams is False else self._json.problem

    def feed(self, text: str) -> str:
        """Take more of the arguments; what stands behind their end is given back."""
        if self.whole or not text:
            return text
        self.raw.append(text)
        if self.streams is None and text.strip():
            self.streams = text.lstrip()[0] == "{"
        if not self.streams or self._json.problem:
            return ""
        self._buf += text
        self._buf = self._buf[self._json.feed(self._buf, 0) :]
        return self._buf if self.whole else ""

    def take(self) -> str:
        """The arguments that may be sent on."""
        return self._json.drain()

    def same(self, arguments: str) -> bool:
        """These arguments are its own once more."""
        return not arguments.strip() or arguments.strip() == "".join(self.raw).strip()

    @property
    def slips(self) -> tuple[str, ...]:
        """What was mended in the arguments."""
        return tuple(self._json.repairs)


class ToolCallAssembler:
    """Takes what the server says piece by piece; `take` gives the events that have come of it."""

    __slots__ = (
        *("_back", "_by_id", "_by_key", "_facts", "_last", "_lost", "_mends", "_model", "_nameless", "_out", "_queue"),
        *("_told_broken", "_tools", "_turn", "_used", "calls", "halves", "phase"),
    )

    def __init__(
        self,
        turn: ExchangeContext,
        model: str,
        tools: Iterable[str] = (),
        *,
        back: Callable[[str], str] = str,
        used: Iterable[str] = (),
    ) -> None:
        """`tools` as the server knows them, `back` gives the client's name; ids `used` before are not used again."""
        self.phase = "new"
        """`new`, `open` or `ended`; nothing is taken once it has ended."""
        self.calls = 0
        """Calls announced."""
        self._turn, self._model, self._tools = turn, model, frozenset(tools)
        self._out: list[AnyEvent] = []
        self._queue: deque[_Call | AnyEvent] = deque()
        self._by_key: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._used = set(used)
        self._lost: set[str] = set()
        self._back = back
        self._mends = ALL_REPAIRS.difference(turn.leave)
        self.halves = Halves()
        """Of characters that the server has cut in two."""
        self._facts: dict[str, str] = {}
        self._told_broken = False
        self._nameless = ""
        """The arguments of a call that has no name."""

    def take(self) -> list[AnyEvent]:
        """The events since the last take."""
        events, self._out = self._out, []
        return events

    def start(self, input_tokens: int = 0) -> None:
        """The server has begun, as it has where anything else comes; said again, it changes nothing."""
        if self.phase == "new":
            self.phase = "open"
            self._out.append(Start(self._turn.id, self._model, self._turn.created, input_tokens))

    def text(self, text: str) -> None:
        """More of the answer's text."""
        if self.halves.found:
            text = self._joined("text", text)
        self._say(TextDelta(text), text)

    def reasoning(self, text: str, signature: str = "", redacted: str = "") -> None:
        """More of the thoughts."""
        if self.halves.found:
            text = self._joined("reasoning", text)
        self._say(ReasoningDelta(text, signature, redacted), text or signature or redacted)

    def vendor(self, dialect: str, type: str, json: str) -> None:
        """A part that only this API has."""
        json = self.halves.settled(json) if self.halves.found else json
        self._say(VendorBlock(dialect, type, json), json)

    def detail(self, name: str, json: str, dialect: str = "") -> None:
        """Something besides text and calls; the same fact once more is passed over."""
        json = json.translate(_ONE_LINE)
        if name in SERVICE and self._facts.get(name) == json:
            return
        self._facts[name] = json
        self._say(Detail(name, self.halves.settled(json) if self.halves.found else json, dialect), json or name)

    def refusal(self, text: str) -> None:
        """More of the words that decline."""
        if self.halves.found:
            text = self._joined("refusal", text)
        self._say(RefusalDelta(text), text)

    def usage(self, usage: Usage) -> None:
        """The counts so far."""
        self.start()
        self._out.append(UsageUpdate(usage))

    def warn(self, code: str, message: str, raw: str = "", detail: str = "") -> None:
        """Something was not as the API has it."""
        self.start()
        self._out.append(Notice(code, message, raw, detail))

    def broken(self, message: str) -> None:
        """A character came broken; told once."""
        if not self._told_broken:
            self._told_broken = True
            self.warn("invalid_utf8", message)

    def _joined(self, place: Hashable, text: str) -> str:
        """The text with the characters whole that the server has cut in two."""
        text = self.halves.joined(place, text)
        if self.halves.lost:
            self.broken("half of a surrogate pair in the answer was read as U+FFFD")
        return text

    def _end_text(self) -> None:
        """Say what waits of text whose last character is still half."""
        for place, say in (("reasoning", self.reasoning), ("text", self.text), ("refusal", self.refusal)):
            if left := self.halves.left(place):
                say(left)

    def lost(self, what: str) -> None:
        """Something that no event has a place for; told once."""
        if what not in self._lost:
            self._lost.add(what)
            self.warn("content_dropped", f"{what} of the server's answer: no place here", detail=what)

    def call(
        self, key: int | None, id: str, name: str, arguments: str, *, apart: bool = False, named: bool = False
    ) -> None:
        """A piece of a call under its index, any of them empty where the server left it out.

        `apart`: it is another call than the piece before, as it stood beside that in one list. `named`: the name
        is complete, as this API never sends it in pieces.
        """
        self.start()
        if self.halves.found:
            self._end_text()
            id, name = self.halves.settled(id), self.halves.settled(name)
        call = self._find(key, id, name, arguments, apart)
        if not call.named:
            self._name(call, name)
            call.named = call.named or (named and bool(name))
        call.id = call.id or id
        spare = call.feed(self._joined(call, arguments) if self.halves.found else arguments)
        if spare.strip() and call.same(spare):
            self.warn(
                "duplicate_call_dropped",
                f"the server sent the call of {quote(call.name)} twice; it is made once",
                spare,
            )
        elif spare.strip():
            told = f"what came behind the whole arguments of {quote(call.name)} was dropped"
            self.warn("extra_arguments", told, spare)
        if call.name and call.raw and not call.named:
            call.named = call.name in self._tools or not self._begins_longer(call.name)
        self._drain()

    def end_call(self, key: int) -> None:
        """The call of this index is over, as far as the server says so."""
        if call := self._by_key.pop(key, None):
            call.closed = True

    def finish(self, reason: FinishReason, stop_sequence: str = "") -> None:
        """The answer is complete; a call whose arguments are not is incomplete."""
        if self.phase == "ended":
            return
        self.start()
        if self.halves.found or self.halves.lost:
            self._end_text()
            self._joined("text", "")
        self._close(cut=reason == "length")
        if not (self.calls or self._turn.is_partial) and reason in ("stop", "tool_calls"):
            if self._nameless and (reason == "tool_calls" or self._nameless != "{}"):
                self.fail(UpstreamError("expected a tool call, got one without a name"))
                return
            if reason == "tool_calls":
                self.warn("unknown_finish", "the server ended for tool calls, and sent none")
        self._out.append(Finish(reason, stop_sequence))
        self.phase = "ended"

    def fail(self, error: DragomanError) -> None:
        """The answer ends here because something broke."""
        if self.phase != "ended":
            self._close(cut=True)
            self._out.append(Failure(error))
            self.phase = "ended"

    def _say(self, event: AnyEvent, said: str) -> None:
        if said:
            self.start()
            if not self._queue:  # as nearly always
                self._out.append(event)
                return
            self._queue.append(event)
            self._drain()

    def _find(self, key: int | None, id: str, name: str, arguments: str, apart: bool) -> _Call:
        found = self._by_key.get(key) if key is not None else self._by_id.get(id) if id else None
        if found is None and key is None and not (apart and name):
            found = self._last
        if found is None or (apart and name and found.whole) or self._is_another(found, id, name, arguments):
            found = _Call(id, self._mends)
            self._queue.append(found)
        if key is not None:
            self._by_key[key] = found
        if id:
            self._by_id[id] = found
        self._last = found
        return found

    def _is_another(self, call: _Call, id: str, name: str, arguments: str) -> bool:
        """Whether a piece under the index of this call begins another one."""
        other_id = bool(id and call.id and id != call.id)
        if not name or not call.name:
            return bool(name) and other_id
        if call.whole:
            return id != call.id if id else not (name == call.name and call.same(arguments))
        if call.named:
            return name != call.name
        return other_id and name != call.name

    def _name(self, call: _Call, piece: str) -> None:
        if piece and piece != call.name:
            call.name = piece if call.name and piece.startswith(call.name) else call.name + piece
        call.named = call.name in self._tools and not self._begins_longer(call.name)

    def _begins_longer(self, name: str) -> bool:
        return any(tool.startswith(name) and tool != name for tool in self._tools)

    def _close(self, cut: bool) -> None:
        """Nothing more comes. Where the answer was `cut`, so was the last call, unless it is whole."""
        last = self._queue[-1] if self._queue else None
        for waiting in self._queue:
            if isinstance(waiting, _Call):
                waiting.closed = True
        while self._queue:
            head = self._queue.popleft()
            if isinstance(head, _Call):
                self._end(head, cut=cut and head is last)
            else:
                self._out.append(head)

    def _drain(self) -> None:
        """Send on all that need not wait; a call that the server has closed waits for what comes behind it."""
        while self._queue:
            head = self._queue[0]
            if isinstance(head, _Call):
                self._advance(head)
                over = head.closed and len(self._queue) > 1
                if not over and not (head.whole and head.name):
                    return
                self._end(head, cut=False)
            else:
                self._out.append(head)
            self._queue.popleft()

    def _advance(self, call: _Call) -> None:
        """Announce the call as soon as its name is complete, and send on what there is of its arguments."""
        if call.index is None:
            if not call.named:
                return
            self._announce(call)
        if (text := call.take()) and call.index is not None:
            self._out.append(ToolCallDelta(call.index, text))

    def _announce(self, call: _Call) -> None:
        id = legal_id(call.id) if call.id else ""
        if not id or id in self._used:
            id = f"call_{self._turn.new_id()}"
        self._used.add(id)
        call.index, self.calls = self.calls, self.calls + 1
        self._out.append(ToolCallStart(call.index, id, self._back(call.name)))

    def _end(self, call: _Call, cut: bool) -> None:
        raw = "".join(call.raw)
        if not call.name:
            self._nameless = self._nameless or raw.strip()
            self.warn("unnamed_call", "the server sent a call without a name; it is none", raw)
            return
        call.named = True
        self._advance(call)
        assert call.index is not None
        slips, whole = call.slips, call.whole
        if not (whole or cut or call.streams):
            arguments, slips, _ = unwrap_arguments(raw, self._mends)
            whole = bool(arguments)
            self._out += [ToolCallDelta(call.index, arguments)] if whole else []
        if whole:
            self._out.append(ToolCallEnd(call.index, mended=slips))
            self._out += [repair_warning(slips, raw)] if slips else []
            return
        self._out.append(ToolCallIncomplete(call.index, raw))
        if call.problem:
            why = f"the arguments of {quote(call.name)} are no JSON object: {call.problem}"
            self.warn("malformed_arguments", why, raw)
