"""Responses of a server behind, to events."""

from dragoman.core.assemble import Assembler
from dragoman.core.contracts import Turn
from dragoman.core.shape import Fields
from dragoman.core.upstream import UpstreamReader
from dragoman.core.values import Request


class Reader(UpstreamReader):
    """One answer."""

    def __init__(self, request: Request, turn: Turn) -> None:
        out = Assembler(turn, request.model, (tool.name for tool in request.tools))
        super().__init__(out, self._event, self._event, lambda: False)

    def _event(self, fields: Fields) -> None:
        pass
