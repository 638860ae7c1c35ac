"""One exchange, kept stage by stage while it happens.

    came → values → asked, as often as a backend was → said → events → reply

It stands beside the straight line and changes nothing in it: as the exchange's `ExchangeObserver` it hears what
backends are asked and what models say, and it is put around the events that leave and around what is sent to the
client. What it has heard becomes files in `stages`; who keeps them is `captures`.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from dragoman.core.backend import Backend, ExchangeContext, SupportsReplay
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent
from dragoman.core.identifiers import NewId
from dragoman.core.messages import Request
from dragoman.server.observe.observer import Hearing, Send

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one exchange: as much as the largest body, and far longer answers than models write. What is over is not kept."""

Timed: TypeAlias = tuple[int, Any]
"""Milliseconds since the request came, and what came then."""
T = TypeVar("T")


@dataclass
class Heard:
    """One time that a model was sent something."""

    to: str
    """Where: the path of a server behind, or what else it was."""
    sent: object
    """Bytes, or what becomes JSON."""
    ms: int
    pieces: list[Timed] = field(default_factory=list)
    error: DragomanError | None = None
    left: bool = False
    """It was not heard to its end: enough had come, or the client had gone."""


@dataclass
class Asked:
    """One time that a backend was asked."""

    backend: Backend
    request: Request
    ms: int
    facts: Mapping[str, object]
    """What it told of itself."""
    heard: list[Heard] = field(default_factory=list)
    events: list[Timed] = field(default_factory=list)
    error: DragomanError | None = None
    is_read: bool = False
    """It gives events; else bytes that are passed on unread."""

    @property
    def name(self) -> str:
        """The backend's."""
        return str(self.backend.state().get("backend", ""))


class Capture(Hearing):
    """Hears one exchange, and keeps it."""

    def __init__(
        self, method: str, path: str, headers: Mapping[str, str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.body = b""
        self.request: Request | None = None
        self.turn = ExchangeContext("", 0, str)
        """As the exchange had it, without this."""
        self.ids: list[str] = []
        """Those that were made for it."""
        self.asked: list[Asked] = []
        self.events: list[Timed] = []
        """As they left."""
        self.reply: list[Timed] = []
        """The messages by which the answer was sent."""
        self.is_cut = False
        """It grew over `MOST_BYTES`."""
        self._now_s, self._began_s, self._bytes = now_s, now_s(), 0

    @property
    def ms(self) -> int:
        """Since the request came."""
        return round((self._now_s() - self._began_s) * 1000)

    @property
    def size_bytes(self) -> int:
        """About as many are kept."""
        return len(self.body) + self._bytes + 1000

    def came(self, body: bytes) -> None:
        """See `Hearing`; so with all that follow."""
        self.body = body

    def read(self, request: Request) -> None:
        """What it was read as."""
        self.request = request

    def tapped(self, turn: ExchangeContext) -> ExchangeContext:
        """The same, heard from now on."""
        self.turn = turn
        return ExchangeContext(turn.id, turn.created, self._noted(turn.new_id), turn.leave, self)

    def _noted(self, new_id: NewId) -> NewId:
        def noted() -> str:
            self.ids.append(id := new_id())
            return id

        return noted

    def asks(self, backend: Backend, request: Request) -> None:
        """See `ExchangeObserver`."""
        shown = backend.shown(request) if isinstance(backend, SupportsReplay) else request
        self.asked.append(Asked(backend, shown, self.ms, _facts(backend, request)))

    async def gave(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """See `ExchangeObserver`."""
        asked = self.asked[-1]
        asked.is_read = True
        try:
            async with aclosing(events):
                async for event in events:
                    self._keep(asked.events, event, 100)
                    yield event
        except DragomanError as error:
            asked.error = error
            raise

    async def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """See `ExchangeObserver`."""
        heard = self._heard(to, sent)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    self._keep(heard.pieces, piece, len(piece) if isinstance(piece, bytes) else 100)
                    yield piece
            heard.left = False
        except DragomanError as error:
            heard.error, heard.left = error, False
            raise

    def _heard(self, to: str, sent: object) -> Heard:
        asked, heard = self.asked[-1], Heard(to, sent, self.ms, left=True)
        if not asked.heard:  # by now it has made up its mind
            asked.facts = _facts(asked.backend, asked.request)
        asked.heard.append(heard)
        return heard

    async def leaving(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """The events for the client, kept on their way."""
        async with aclosing(events):
            async for event in events:
                self._keep(self.events, event, 100)
                yield event

    def sending(self, send: Send) -> Send:
        """What sends the answer, with all of it kept."""

        async def kept(message: MutableMapping[str, Any]) -> None:
            self._keep(self.reply, dict(message), len(message.get("body", b"")) + 100)
            await send(message)

        return kept

    def _keep(self, where: list[Timed], what: object, size: int) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            self.is_cut = True
        else:
            where.append((self.ms, what))


def _facts(backend: Backend, request: Request) -> Mapping[str, object]:
    """What it tells of itself; an answer does not fail for that it cannot, as where its template's file is gone."""
    try:
        return backend.facts(request.model) if isinstance(backend, SupportsReplay) else {}
    except DragomanError as error:
        return {"untold": error.message}
