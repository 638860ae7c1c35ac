"""Parley of a server behind, to events: streamed or whole."""

from typing import Final

import msgspec
from msgspec import Struct, field

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import UpstreamError
from dragoman.core.identifiers import NAME_FORM
from dragoman.core.messages import FinishReason, Request, Usage
from dragoman.dialects.parley.request_writer import NAME
from dragoman.text.json_cursor import Fields
from dragoman.wire.response_reader import DECODE_ERRORS, BaseResponseReader, new_assembler


class _Piece(Struct, forbid_unknown_fields=True):
    """What most events are; nothing else fits into it."""

    say: str = ""
    more: str = field(name="with", default="")


_piece: Final = msgspec.json.Decoder(_Piece).decode
_DONE: Final[dict[str, FinishReason]] = {"say": "stop", "do": "tool_calls", "cut": "length"}


class ParleyResponseReader(BaseResponseReader):
    """One answer."""

    def __init__(self, request: Request, context: ExchangeContext) -> None:
        super().__init__(new_assembler(request, context, NAME, NAME_FORM))
        self._reason: FinishReason | None = None
        self._calls = 0

    def _ended(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason)
        return True

    def _quick(self, data: bytes) -> bool:
        try:
            piece = _piece(data)
        except DECODE_ERRORS:
            return False
        self._out.start()
        self._out.text(piece.say)
        if piece.more:
            self._out.call(self._calls - 1, "", "", piece.more)
        return True

    def _frame(self, fields: Fields) -> None:
        self._out.start()
        self._out.text(fields.string("say"))
        if (call := fields.pop("do")) is not None:
            self._calls += 1
            self._call(call.fields())
        if arguments := fields.string("with"):
            self._out.call(self._calls - 1, "", "", arguments)
        self._done(fields)

    def _read_unstreamed(self, fields: Fields) -> None:
        self._out.start()
        self._out.text(fields.string("say"))
        for call in fields.items("do"):
            self._calls += 1
            self._call(call.fields())
        self._done(fields)

    def _call(self, call: Fields) -> None:
        id, name = call.string("id"), call.string("tool")
        self._out.call(self._calls - 1, id, name, call.object("with") or "")

    def _done(self, fields: Fields) -> None:
        if (done := fields.pop("done")) is None:
            return
        if done.string() == "wrong":
            raise UpstreamError(f"the server ended the reply: {fields.string('wrong')}")
        self._reason = _DONE[done.one_of(_DONE, "end")]
        if tokens := fields.items("tokens"):
            self._out.usage(Usage(*(count.integer(minimum=0) for count in tokens[:2])))
