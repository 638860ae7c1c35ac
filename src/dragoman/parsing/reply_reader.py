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
from collections.abc import Iterable
from typing import Final, Literal

from dragoman.core.errors import UsageError, quote
from dragoman.core.events import AnyEvent
from dragoman.core.identifiers import NewId
from dragoman.core.messages import Tool
from dragoman.parsing.buffered_calls import BufferedCalls
from dragoman.parsing.control_token_mask import ControlTokenMask, UnmaskingSink
from dragoman.parsing.event_sink import EventSink, MakeEvent
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.sink import ToolCallSink
from dragoman.schema.argument_types import escape_for_string
from dragoman.text.scanner import FastPath, Scanner, discard

_NO_FAST_PATH: Final = FastPath(re.compile("").match, discard, ())
"""No fast path: the format's reader has to see each piece."""
MAX_SKIPPED_CHUNKS: Final = 1024
"""Pieces that may bypass the scanner before they are reported to it, so that they do not accumulate."""
_DEFAULT_OPTIONS: Final = ReaderOptions()


class ReplyReader:
    """Reads one reply of a model.

    Args:
        format: the model's format.
        tools: the offered tools; a call of any other name stays text, with a warning. None: any name is accepted.
        new_id: generates the ids of calls.
        options: how the reply is read.

    Raises:
        UsageError: an argument is invalid, or text was fed after the end.
    """

    def __init__(
        self,
        format: Format,
        tools: Iterable[Tool] | None,
        *,
        new_id: NewId,
        options: ReaderOptions = _DEFAULT_OPTIONS,
    ) -> None:
        _check_format(format)
        self._scanner = Scanner(options.enabled_repairs)
        self._sink = EventSink(_callable_tools(tools), self._scanner, new_id, options)
        self._mask = ControlTokenMask(options.control) if options.control else None
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
        self._scanner.feed(options.prompt_suffix)
        self._resume()
        self._sink.begin(self._sink.drain(), BufferedCalls() if options.buffering == "all" else None)

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
            pending = self._waiting + text if self._waiting else text
            stop = self._find_stop(pending)
        except TypeError:
            raise feed_error(text) from None
        if stop is None and self._event and text and not plain:
            self._skipped.append(pending)
            if len(self._skipped) == MAX_SKIPPED_CHUNKS:
                self._flush_skipped()
            self._waiting = ""
            return [self._event(escape_for_string(pending) if self._quotes else pending)]
        at = len(pending) if stop is None else self._fast_path.deferrable_from(pending, stop)
        if at < 0 or plain:
            return self._parse(text, plain)
        self._waiting = pending[at:]
        return self._pass_by(pending[:at])

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


def _check_format(format: object) -> None:
    if not isinstance(format, Format):
        hint = f"; take dragoman.formats.get({quote(format)})" if isinstance(format, str) else ""
        raise UsageError(f"expected a Format, got {type(format).__name__}{hint} - at format")


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
