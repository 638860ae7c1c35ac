"""Backends as they were when an exchange was captured, with nothing behind them.

    backend = played(facts, model, reads, cut)      `facts`: what `SupportsReplay.facts` told then

They ask and read as the real ones do, since they are those; what a model says to them comes from the
exchange's `ExchangeObserver`,
which gives what was captured in place of asking anybody. What reads the model's text is noted in `reads`.
"""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.model_modes import ModelMode
from dragoman.backends.http.request_plan import RequestPlanner
from dragoman.backends.http.response import ResponsePipeline
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.core.backend import Backend, ExchangeContext, ServedModel
from dragoman.core.events import AnyEvent, TextDelta
from dragoman.core.messages import Request, Tool
from dragoman.parsing.format import Format
from dragoman.wire.dialect import Dialect, ResponseReader, UpstreamRequest

Cut: TypeAlias = Literal["recorded", "whole", "chars", "random"]
_LONGEST: Final = 12
"""Characters of a piece that is cut by chance: two or three tokens."""


class Read(NamedTuple):
    """How a model's text is read."""

    format: Format | None
    """None: the server behind reads it."""
    tools: tuple[Tool, ...]
    tail: str = ""
    lenient: bool = False


class Recut:
    """Cuts text, or bytes, that comes in pieces otherwise."""

    def __init__(self, cut: Cut, seed: int) -> None:
        self._cut, self._random, self._held = cut, random.Random(seed), ""
        self._next = self._size()

    def _size(self) -> int:
        return 1 if self._cut == "chars" else self._random.randint(1, _LONGEST)

    def feed(self, text: str) -> list[str]:
        """The pieces that are whole with this one."""
        if self._cut == "recorded":
            return [text]
        self._held += text
        out: list[str] = []
        while self._cut != "whole" and len(self._held) >= self._next:
            out.append(self._held[: self._next])
            self._held, self._next = self._held[self._next :], self._size()
        return out

    def close(self) -> list[str]:
        """What is left."""
        held, self._held = self._held, ""
        return [held] if held else []


class _CutReader:
    """A reader whose text comes in other pieces."""

    def __init__(self, reader: ResponseReader, recut: Recut) -> None:
        self._reader, self._recut = reader, recut

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """As the reader behind."""
        return self._again(self._reader.feed(piece))

    def close(self) -> list[AnyEvent]:
        """As the reader behind."""
        return [*self._again(self._reader.close()), *map(TextDelta, self._recut.close())]

    def _again(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        for event in events:
            if isinstance(event, TextDelta):
                out += map(TextDelta, self._recut.feed(event.text))
            else:
                out += [*map(TextDelta, self._recut.close()), event]
        return out


class _Asking(RequestPlanner):
    """Notes how text is read, and has it cut."""

    def __init__(self, name: str, config: HttpConfig, dialect: Dialect, reads: list[Read], recut: Callable[[], Recut]):
        super().__init__(name, config, dialect)
        self._reads, self._recut = reads, recut

    def reading(
        self, request: Request, turn: ExchangeContext, mode: ModelMode, outgoing: UpstreamRequest
    ) -> ResponsePipeline:
        """As the real one."""
        reading = super().open_response(request, turn, mode, outgoing)
        tools, _ = text_mode_request.spelled(text_mode_request.offered(request), self._name_pattern(request, mode))
        known = None if mode.mode == "native" and not outgoing.written_as else self._format(request, mode)
        told = self._identified.get(mode.template)
        tail = outgoing.opened or (told.prompt_tail if told else "")
        self._reads.append(Read(known, tools, tail, lenient=bool(tools)))
        reading.reader = _CutReader(reading.reader, self._recut())
        return reading


class _Http(HttpBackend):
    def __init__(self, facts: Mapping[str, Any], model: str, reads: list[Read], recut: Callable[[], Recut]) -> None:
        mode = _way_of(facts)
        # The mode and format are left open here, so that each request uses those that were captured for it.
        stated = {"mode": "", "format": "", "endpoint": mode.endpoint, "template": ""}
        settings = {**facts["settings"], **stated, "url": facts["url"], "kind": facts["server"], "models": [model]}
        config = msgspec.convert(settings, HttpConfig)
        super().__init__(facts["name"], config, {})
        self._asked_model, self._captured_ways = model, [mode]
        self.modes.set_measured(model, mode)
        self._planner = _Asking(facts["name"], config, self._dialect, reads, recut)
        if "template" in facts:
            self._planner.set_template(model, mode, facts)

    def learn(self, request: Request) -> None:
        self._planner.verbatim_history.learn(request)

    def expect(self, facts: Mapping[str, Any]) -> None:
        self._captured_ways.append(_way_of(facts))

    def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        if self._captured_ways:
            self.modes.set_measured(self._asked_model, self._captured_ways.pop(0))
        return super().ask(request, turn)


def _way_of(facts: Mapping[str, Any]) -> ModelMode:
    return msgspec.convert({**facts["way"], "template": ""}, ModelMode)


def _embedded(facts: Mapping[str, Any], model: str, reads: list[Read], recut: Callable[[], Recut]) -> Backend:
    from dragoman.backends.embedded import backend as embedded_backend
    from dragoman.backends.embedded import gguf
    from dragoman.catalog import models as model_catalog
    from dragoman.parsing.reply_reader import ReplyReader

    class Played(embedded_backend.Embedded):
        def learn(self, request: Request) -> None:
            self.own_words.learn(request)

        def reader(self, request: Request, turn: ExchangeContext, prepared: Any) -> ReplyReader:
            tools = request.tools if prepared.has_tools else ()
            reads.append(Read(self.format, tools, prepared.tail, lenient=prepared.has_tools))
            return super().reader(request, turn, prepared)

    config = msgspec.convert(facts["settings"], EmbeddedConfig)
    profile = model_catalog.get(facts["profile"]) if facts["profile"] else None
    metadata = msgspec.convert(facts["metadata"], gguf.Metadata)
    return Played(Path(f"{model}.gguf"), profile, config, lambda _: None, metadata)


def _claude(facts: Mapping[str, Any], model: str, reads: list[Read], recut: Callable[[], Recut]) -> Backend:
    from dragoman.backends.claude_cli import backend, single_prompt
    from dragoman.backends.claude_cli.command import Spec
    from dragoman.backends.claude_cli.config import ClaudeCliConfig
    from dragoman.backends.claude_cli.conversation import Conversation
    from dragoman.backends.claude_cli.discovery import Installed
    from dragoman.backends.claude_cli.process import Process
    from dragoman.backends.claude_cli.session import Session

    class Silent(Session):
        """Tells nobody."""

        async def again(self, words: str, *, called: bool) -> None:
            pass

        async def cost_usd(self, *, called: bool) -> float | None:
            return cast("float | None", facts.get("cost_usd"))

    class Played(backend.ClaudeCli):
        def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
            self._tools = text_mode_request.offered(request)
            return super().ask(request, turn)

        @asynccontextmanager
        async def _begun(self, kind: Spec, conversation: Conversation) -> AsyncIterator[Session]:
            reads.append(Read(single_prompt.FORMAT if conversation.in_words else None, self._tools))
            yield Silent(cast(Process, None), conversation, 1.0)

    made = Played(ClaudeCliConfig(enabled=True, warm=0), {})
    made._installed = Installed("claude", tuple(facts["version"]), facts["mode"])
    made._has_budget = facts["budget"]
    return made


class _Given:
    """One that only gives the events that it gave, as nothing else is known of it."""

    def __init__(self, facts: Mapping[str, Any], model: str) -> None:
        self._name, self._model = str(facts.get("backend", "")), ServedModel(model)

    def models(self) -> Sequence[ServedModel]:
        return (self._model,)

    async def refresh(self) -> None:
        """It has no others."""

    async def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        async for event in turn.heard("", b"", _nothing()):
            yield event

    async def count_tokens(self, request: Request) -> int | None:
        return None

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    def state(self) -> Mapping[str, object]:
        return {"backend": self._name, "ready": True}


async def _nothing() -> AsyncGenerator[AnyEvent, None]:
    """For the tap to give what it has in place of it."""
    for event in tuple[AnyEvent, ...]():
        yield event


KINDS: Final[Mapping[str, Callable[..., Backend]]] = {"http": _Http, "embedded": _embedded, "claude_cli": _claude}


@runtime_checkable
class Learns(Protocol):
    """One that shows a model its own turns in its own words."""

    def learn(self, request: Request) -> None:
        """Remember those of this request, as it was shown to the model then."""


@runtime_checkable
class FollowsCapturedModes(Protocol):
    """A backend whose tool mode may have changed between the requests of one exchange, as mode `auto` does."""

    def expect(self, facts: Mapping[str, Any]) -> None:
        """Adds the facts that were captured of the next request; requests use them in this order."""


def played(facts: Mapping[str, Any], model: str, reads: list[Read], cut: Cut, seed: int) -> Backend:
    """The backend that told these facts, asked for this model.

    Raises: ConfigError: the facts are none.
    """
    if (made := KINDS.get(facts.get("kind", ""))) is None:
        return _Given(facts, model)
    return made(facts, model, reads, partial(Recut, cut, seed))
