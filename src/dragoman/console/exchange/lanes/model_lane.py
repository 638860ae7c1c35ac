"""The lane of what models wrote: spans of the text as `dragoman replay --explain` has them, and what became of each."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dragoman.api.advice import CHANGE, NOTHING
from dragoman.api.parse import explain
from dragoman.catalog.warning_codes import warning_codes
from dragoman.console.exchange.lanes.argument_repairs import argument_segments
from dragoman.console.exchange.lanes.links import Links
from dragoman.console.exchange.lanes.model_output import ModelOutputText
from dragoman.console.exchange.lanes.notes import call_notes, distinct, error_note, span_notes, warned_note
from dragoman.console.exchange.lanes.traced_events import RECOVERED, TextRun, TracedCall, TracedEvents
from dragoman.console.exchange.views import ExchangeNote, Lane, LaneBlock, Segment, lane, number, segments
from dragoman.core.tool_name_match import normalize_name
from dragoman.parsing.trace import Span
from dragoman.server.capture.explanation import ExplainedText, explain_text
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.replay_backend import ReadSettings

Reads = Mapping[tuple[int, int], ReadSettings]
"""How each text was read, by the numbers of its backend call and of the request to the model."""
_KINDS: Final = {
    "text": "text",
    "reasoning": "reasoning",
    "call": "markup",
    "arguments": "arguments",
    "end": "markup",
    "incomplete": "broken",
    "framing": "markup",
    "dropped": "dropped",
    "unread": "unread",
}
_OTHER_FORMATS: Final = ("llama3_json", "xlam", "functionary_v32", "muse_glimmer", "beam", "harmony")
"""Formats of calls without markers of their own, in which leaked calls are searched."""
_RAW_CHARS: Final = 8_000
ADVICE: Final = "advice"
"""Code of the notes about what to change so that a text is read otherwise."""
RAW: Final = "raw:"
"""Beginning of the links of blocks with raw output, which repeat what the other blocks have."""


class _Piece(NamedTuple):
    """A piece of a model's text, before it is cut at the borders of runs."""

    text: str
    kind: str
    call: int | None
    """Number of the call among those in the text."""
    notes: tuple[ExchangeNote, ...]
    is_whole: bool = True
    """False: a run of text ended in it."""


def model_lane(outputs: Sequence[ModelOutputText], capture: LoadedCapture, reads: Reads, links: Links) -> Lane:
    """Returns the lane.

    Args:
        outputs: The outputs of models.
        capture: The exchange.
        reads: How each text was read.
        links: Finds the counterparts in the response.
    """
    is_cut = capture.json("summary.json").get("log", {}).get("finish") == "length"
    blocks: list[LaneBlock] = []
    readers: list[str] = []
    for output in outputs:
        read = reads.get((output.number, output.model_request))
        explained = explain_text(output.number, output.model_request, output.text, read, is_cut=is_cut)
        backend = TracedEvents(capture.lines(f"{output.number}/events.jsonl"))
        made = _OutputBlocks(output, explained, backend, links)
        blocks += made.blocks()
        readers += [made.reader] * bool(output.text)
    summary = "; ".join(dict.fromkeys(readers)) or ("the model wrote no text" if outputs else "no model was asked")
    return lane("model", "what the model wrote", summary, blocks)


def advice_notes(model: Lane) -> Iterator[ExchangeNote]:
    """Yields what to change so that the texts of a lane are read otherwise, if there is anything."""
    notes = (note for block in model.blocks for segment in block.segments for note in segment.notes)
    return (note for note in notes if note.code == ADVICE and not note.message.lower().startswith(NOTHING))


class _OutputBlocks:
    """The blocks of one output."""

    def __init__(self, output: ModelOutputText, explained: ExplainedText, backend: TracedEvents, links: Links) -> None:
        self._output, self._explained, self._backend, self._links = output, explained, backend, links
        own = {call.id for call in output.events.calls}
        self._is_native = explained.read is None or explained.read.format is None
        self._text_calls = [call for call in backend.calls if call.id not in own or not self._is_native]
        """The calls that were read in the text."""
        self._recovered = [call for call in self._text_calls if call.is_recovered] if self._is_native else []

    @property
    def reader(self) -> str:
        """How the text was read, in a few words."""
        if self._recovered:
            return f"the server left {self._recovered_count} in its text"
        read = self._explained.read
        return (
            "calls read by the server" if read is None or read.format is None else f"read as format {read.format.name}"
        )

    @property
    def advice(self) -> str:
        """What to change, as a sentence."""
        if self._recovered:
            return f"The server left {self._recovered_count} in its text: {warning_codes()[RECOVERED].remedy}"
        text = self._explained.advice.removeprefix(CHANGE)
        return text[:1].upper() + text[1:]

    @property
    def _recovered_count(self) -> str:
        return f"{len(self._recovered)} {'call' if len(self._recovered) == 1 else 'calls'}"

    def blocks(self) -> Iterator[LaneBlock]:
        """Yields runs of text and reasoning, the server's own calls, how the output ended, and its bytes."""
        pieces = deque(self._pieces())
        for item in self._output.events.items:
            yield self._run(item, pieces) if isinstance(item, TextRun) else self._call(item)
        if notes := self._end_notes():
            parts = segments("", "plain", notes=notes)
            yield LaneBlock(title="how the output ended", segments=parts, number=self._output.number)
        if self._output.raw:
            yield self._raw()

    def _run(self, run: TextRun, pieces: deque[_Piece]) -> LaneBlock:
        number = self._output.number
        title = f"{run.kind}, in {len(run.pieces)} {'piece' if len(run.pieces) == 1 else 'pieces'}"
        if run.kind == "reasoning":
            link = self._links.text("reasoning", run.text)
            parts = segments(run.text, "reasoning", link)
            return LaneBlock(
                title=f"{title}, as the server read it", segments=parts, link=link, ms=run.ms, number=number
            )
        parts = tuple(each for piece in _take(pieces, len(run.text)) for each in self._segments(piece))
        return LaneBlock(title=f"{title}: {self._explained.reader}", segments=parts, ms=run.ms, number=number)

    def _segments(self, piece: _Piece) -> Iterator[Segment]:
        call = self._text_call(piece.call)
        if call is None:
            link = self._links.text(piece.kind, piece.text) if piece.kind in ("text", "reasoning") else ""
            yield from segments(piece.text, piece.kind, link, piece.notes)
            return
        link = self._links.call(self._output.number, call)
        if not call.is_whole and self._links.client_call(call) is None:
            link = self._links.text("text", call.raw) or link  # a broken call is passed on as text
        if piece.kind == "arguments" and piece.is_whole:
            sent = self._links.client_call(call)
            notes = [note for note in self._call_notes(sent) if note.code != RECOVERED]  # its name has that one
            yield from argument_segments(piece.text, call.arguments, link, [*piece.notes, *notes])
        else:
            yield from segments(piece.text, piece.kind, link, piece.notes)

    def _call_notes(self, call: TracedCall | None) -> Sequence[ExchangeNote]:
        return distinct(call_notes(call)) if call else ()

    def _text_call(self, number: int | None) -> TracedCall | None:
        return self._text_calls[number] if number is not None and number < len(self._text_calls) else None

    def _call(self, call: TracedCall) -> LaneBlock:
        """Returns a call that the server read itself."""
        same = next((one for one in self._backend.calls if one.id == call.id), None) or call
        sent = self._links.client_call(same)
        link = self._links.call(self._output.number, same)
        notes = self._call_notes(sent) if sent else [*map(warned_note, same.warnings)]
        parts = (
            *segments(call.name, "name", link),
            *segments(" ", "plain", link),
            *segments(call.arguments or call.raw, "arguments", link, notes),
        )
        title = f"tool call {call.name}, as the server read it"
        return LaneBlock(title=title, segments=parts, link=link, ms=call.ms, number=self._output.number)

    def _end_notes(self) -> list[ExchangeNote]:
        output = self._output
        notes = [error_note(output.error)] if output.error else []
        if output.is_abandoned and not output.events.finish:
            message = "the output was not read to its end: no more was needed, or the client had left"
            notes.append(ExchangeNote(code="abandoned", message=message))
        if output.text or not self._backend.calls:
            notes.append(ExchangeNote(code=ADVICE, message=self.advice, rule=self._explained.reader))
        return notes

    def _raw(self) -> LaneBlock:
        output = self._output
        parts = segments(output.raw[:_RAW_CHARS], "plain")
        if (rest := len(output.raw) - _RAW_CHARS) > 0:
            name = f"{output.number}/model-output-{output.model_request}.jsonl"
            note = ExchangeNote(
                code="left_out", message=f"{rest:,} characters are left out", remedy=f"{name} has all of it"
            )
            parts = (*parts, Segment(text="…", kind="plain", notes=(note,)))
        title = f"raw output of the server, in {number(output.chunk_count, 'chunk')}"
        return LaneBlock(
            title=title, segments=parts, link=f"{RAW}{output.number}.{output.model_request}", number=output.number
        )

    def _pieces(self) -> list[_Piece]:
        """Returns the model's text in pieces."""
        if not self._is_native:
            return list(_of_spans(self._explained.spans, self._explained.reader))
        recovered = self._recovered
        spans = self._spans_of_recovered(recovered) if recovered else None
        if spans is None:
            reasoned = bool(self._backend.texts("reasoning")) and not self._output.events.texts("reasoning")
            return [
                _as_text(piece, keeps_reasoning=reasoned)
                for piece in _of_spans(self._explained.spans, self._explained.reader)
            ]
        self._text_calls = recovered
        rule = "The server read this response and left this call in its text, where the gateway found it."
        return [
            piece._replace(notes=(*piece.notes, *map(warned_note, recovered[piece.call].warnings)))
            if piece.kind == "name" and piece.call is not None and piece.call < len(recovered)
            else piece
            for piece in _of_spans(spans, rule)
        ]

    def _spans_of_recovered(self, calls: Sequence[TracedCall]) -> tuple[Span, ...] | None:
        """Returns spans in which the recovered calls are calls: leaked calls have no format that is known before."""
        expected = [call.name for call in calls]
        tools = self._explained.read.tools if self._explained.read else None
        for format in ("auto", *_OTHER_FORMATS):
            for lenient in (False, bool(tools)):
                spans = explain(self._output.text, format, tools, lenient=lenient, new_id=str)
                if [span.name for span in spans if span.kind == "call"] == expected:
                    return spans
        return None


def _as_text(piece: _Piece, *, keeps_reasoning: bool) -> _Piece:
    """Returns a piece of a text in which the server left no call: all of it is text."""
    is_kept = piece.kind in ("text", "unread") or (keeps_reasoning and piece.kind == "reasoning")
    return piece if is_kept else piece._replace(kind="text", call=None)


def _of_spans(spans: Sequence[Span], reader: str) -> Iterator[_Piece]:
    """Yields the pieces of the spans; the beginning of a call is cut at its name."""
    for span in spans:
        notes = span_notes(span, reader)
        kind = "text" if span.also_text and span.kind not in ("arguments", "call") else _KINDS[span.kind]
        if span.also_text and span.kind != "text":
            message = "the call is not whole, so it is passed on as text too"
            notes = (*notes, ExchangeNote(code="also_text", message=message, rule=reader))
        if span.kind == "call":
            read = ExchangeNote(
                code="read_as", message=f"read as a call of {span.name}", rule=f"format {span.format}; {reader}"
            )
            yield from _cut_at_name(span, kind, (read, *notes))
        else:
            yield _Piece(span.raw, "broken" if span.kind == "incomplete" else kind, span.index, notes)


def _cut_at_name(span: Span, kind: str, notes: tuple[ExchangeNote, ...]) -> Iterator[_Piece]:
    start, end = _find_name(span.raw, span.name)
    if start < 0:
        yield _Piece(span.raw, kind, span.index, notes)
        return
    yield _Piece(span.raw[:start], kind, span.index, ())
    yield _Piece(span.raw[start:end], "name", span.index, notes)
    yield _Piece(span.raw[end:], kind, span.index, ())


def _find_name(raw: str, name: str) -> tuple[int, int]:
    """Returns where the name of a tool is in the beginning of its call, also in another spelling; -1: nowhere."""
    start = raw.rfind(name) if name else -1
    if start >= 0:
        return start, start + len(name)
    expected = normalize_name(name)
    matches = [(at, word) for at, word in _split_words(raw) if normalize_name(word) == expected]
    return (matches[-1][0], matches[-1][0] + len(matches[-1][1])) if matches else (-1, -1)


def _split_words(raw: str) -> Iterator[tuple[int, str]]:
    start = 0
    for at, char in enumerate(f"{raw} "):
        if not (char.isalnum() or char in "_.-:"):
            if at > start:
                yield start, raw[start:at]
            start = at + 1


def _take(pieces: deque[_Piece], size: int) -> Iterator[_Piece]:
    """Removes and yields so many characters from the beginning of the pieces; a piece at the border is cut."""
    while size > 0 and pieces:
        piece = pieces.popleft()
        if len(piece.text) > size:
            pieces.appendleft(piece._replace(text=piece.text[size:], notes=(), is_whole=False))
            piece = piece._replace(text=piece.text[:size], is_whole=False)
        size -= len(piece.text)
        yield piece
    while pieces and not pieces[0].text:  # notes about the end
        yield pieces.popleft()
