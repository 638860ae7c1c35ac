"""Backends as they were when an exchange was captured, without servers or processes.

    backend = replay_backend(facts, model, reads, cut)      `facts`: what `Backend.describe` returned then

They are the real backend classes, so they build requests and read responses as those do. The model's output comes from
the
exchange's `ExchangeObserver`, which returns what was captured. How the text was read is recorded in `reads`.
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
from dragoman.backends.http.continuing.pipeline import ResponsePipeline
from dragoman.backends.http.model_modes import ModelMode
from dragoman.backends.http.planning.request_plan import RequestPlan
from dragoman.backends.http.response import ResponseOpener
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.events import AnyEvent, TextDelta
from dragoman.core.messages import Request, Tool
from dragoman.parsing.format import Format
from dragoman.wire.dialect import ResponseReader

ChunkMode: TypeAlias = Literal["recorded", "whole", "chars", "random"]
_MAX_CHUNK_CHARS: Final = 12
"""Maximum length in characters of a random chunk: two or three tokens."""


class ReadSettings(NamedTuple):
    """How a model's text is read."""

    format: Format | None
    """None: the upstream server parses the calls."""
    tools: tuple[Tool, ...]
    prompt_suffix: str = ""
    lenient: bool = False


class Rechunker:
    """Splits text, or bytes, into other chunks than those in which it arrives."""

    def __init__(self, cut: ChunkMode, seed: int) -> None:
        self._cut, self._random, self._buffered = cut, random.Random(seed), ""
        self._next = self._size()

    @property
    def is_recorded(self) -> bool:
        """Whether the chunks stay as they arrived."""
        return self._cut == "recorded"

    def _size(self) -> int:
        return 1 if self._cut == "chars" else self._random.randint(1, _MAX_CHUNK_CHARS)

    def feed(self, text: str) -> list[str]:
        """Returns the chunks that are complete with this piece."""
        if self._cut == "recorded":
            return [text]
        self._buffered += text
        out: list[str] = []
        while self._cut != "whole" and len(self._buffered) >= self._next:
            out.append(self._buffered[: self._next])
            self._buffered, self._next = self._buffered[self._next :], self._size()
        return out

    def close(self) -> list[str]:
        """Returns the rest."""
        buffered, self._buffered = self._buffered, ""
        return [buffered] if buffered else []


class _CutReader:
    """A reader that gets its text in other chunks."""

    def __init__(self, reader: ResponseReader, new_rechunker: Rechunker) -> None:
        self._reader, self._rechunker = reader, new_rechunker

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """See `Reader`."""
        return self._rechunk(self._reader.feed(piece))

    def close(self) -> list[AnyEvent]:
        """See `Reader`."""
        return [*self._rechunk(self._reader.close()), *map(TextDelta, self._rechunker.close())]

    def _rechunk(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        for event in events:
            if isinstance(event, TextDelta):
                out += map(TextDelta, self._rechunker.feed(event.text))
            else:
                out += [*map(TextDelta, self._rechunker.close()), event]
        return out


class _RecordingOpener(ResponseOpener):
    """Records how text is read, and splits it into other chunks."""

    def __init__(self, *settings: Any, reads: list[ReadSettings], new_rechunker: Callable[[], Rechunker]) -> None:
        super().__init__(*settings)
        self._reads, self._rechunker = reads, new_rechunker

    def open(self, plan: RequestPlan, context: ExchangeContext, headers: Mapping[str, str]) -> ResponsePipeline:
        """See `ResponseOpener`."""
        pipeline = super().open(plan, context, headers)
        self._reads.append(ReadSettings(plan.format, plan.tools, plan.prompt_suffix, lenient=bool(plan.tools)))
        rechunker = self._rechunker()
        pipeline.reader, pipeline.joins_text = _CutReader(pipeline.reader, rechunker), rechunker.is_recorded
        return pipeline


class _HttpReplayBackend(HttpBackend):
    def __init__(
        self, facts: Mapping[str, Any], model: str, reads: list[ReadSettings], new_rechunker: Callable[[], Rechunker]
    ) -> None:
        mode = _mode_of(facts)
        # Tool mode and call format are left open here, so that each request uses those that were captured for it.
        stated = {"tool_mode": "", "call_format": "", "endpoint": mode.endpoint, "chat_template": ""}
        settings = {
            **facts["settings"],
            **stated,
            "url": facts["url"],
            "provider": facts["provider"],
            "models": [model],
        }
        config = msgspec.convert(settings, HttpConfig)
        super().__init__(facts["name"], config, {})
        self._requested_model, self._captured_modes = model, [mode]
        self.modes.set_measured(model, mode)
        history, clean = self.planner.verbatim_history, self._connection.secret_values.clean_error
        self._responses = _RecordingOpener(
            facts["name"], config, self._dialect, history, clean, reads=reads, new_rechunker=new_rechunker
        )
        if "template" in facts:
            self.planner.set_template(model, mode, facts)

    def learn(self, request: Request) -> None:
        self.planner.verbatim_history.remember(request)

    def expect(self, facts: Mapping[str, Any]) -> None:
        self._captured_modes.append(_mode_of(facts))

    def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        if self._captured_modes:
            self.modes.set_measured(self._requested_model, self._captured_modes.pop(0))
        return super().generate(request, context)


def _mode_of(facts: Mapping[str, Any]) -> ModelMode:
    return msgspec.convert({**facts["model_mode"], "chat_template": ""}, ModelMode)


def _embedded(
    facts: Mapping[str, Any], model: str, reads: list[ReadSettings], new_rechunker: Callable[[], Rechunker]
) -> Backend:
    from dragoman.backends.embedded import gguf
    from dragoman.backends.embedded.embedded_model import EmbeddedModel
    from dragoman.catalog import models as model_catalog
    from dragoman.parsing.reply_reader import ReplyReader

    class Played(EmbeddedModel):
        def learn(self, request: Request) -> None:
            self.verbatim_history.remember(request)

        def new_reader(self, request: Request, context: ExchangeContext, prepared: Any) -> ReplyReader:
            tools = request.tools if prepared.has_tools else ()
            reads.append(ReadSettings(self.format, tools, prepared.suffix, lenient=prepared.has_tools))
            return super().new_reader(request, context, prepared)

    config = msgspec.convert(facts["settings"], EmbeddedConfig)
    profile = model_catalog.get(facts["profile"]) if facts["profile"] else None
    metadata = msgspec.convert(facts["metadata"], gguf.Metadata)
    return Played(Path(f"{model}.gguf"), profile, config, lambda _: None, metadata, model)


def _claude(
    facts: Mapping[str, Any], model: str, reads: list[ReadSettings], new_rechunker: Callable[[], Rechunker]
) -> Backend:
    from dragoman.backends.claude_cli import backend, single_prompt
    from dragoman.backends.claude_cli.command import ModelSpec
    from dragoman.backends.claude_cli.config import ClaudeCliConfig
    from dragoman.backends.claude_cli.conversation import Conversation
    from dragoman.backends.claude_cli.discovery import ClaudeInstall
    from dragoman.backends.claude_cli.process import Process
    from dragoman.backends.claude_cli.session import ClaudeSession

    class Silent(ClaudeSession):
        """A session of recorded output, which does not write to a process."""

        async def reask(self, text: str, *, has_call: bool) -> None:
            pass

        async def cost_usd(self, *, has_call: bool) -> float | None:
            return cast("float | None", facts.get("cost_usd"))

    class Played(backend.ClaudeCliBackend):
        def generate(self, request: Request, context: ExchangeContext) -> EventStream:
            self._tools = text_mode_request.callable_tools(request)
            return super().generate(request, context)

        @asynccontextmanager
        async def _open_session(self, kind: ModelSpec, conversation: Conversation) -> AsyncIterator[ClaudeSession]:
            reads.append(ReadSettings(single_prompt.FORMAT if conversation.is_single_prompt else None, self._tools))
            yield Silent(cast(Process, None), conversation, 1.0)

    played = Played(ClaudeCliConfig(enabled=True, warm_processes=0), {})
    played._installed = ClaudeInstall("claude", tuple(facts["version"]), facts["mode"])
    played._has_budget = facts["budget"]
    return played


class _EventReplayBackend(Backend):
    """A backend of which only the events are known; it yields those."""

    def __init__(self, facts: Mapping[str, Any], model: str) -> None:
        self._name, self._model = str(facts.get("backend", "")), ServedModel(model)

    def models(self) -> Sequence[ServedModel]:
        return (self._model,)

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        async for event in context.wrap_model_output("", b"", _no_events()):
            yield [event]

    def health(self) -> Mapping[str, object]:
        return {"backend": self._name, "ready": True}


async def _no_events() -> AsyncGenerator[AnyEvent, None]:
    """Yields nothing: the observer replaces it with the captured events."""
    for event in tuple[AnyEvent, ...]():
        yield event


KINDS: Final[Mapping[str, Callable[..., Backend]]] = {
    "http": _HttpReplayBackend,
    "embedded": _embedded,
    "claude_cli": _claude,
}


@runtime_checkable
class ReceivesFacts(Protocol):
    """A backend that shows a model its own past turns verbatim."""

    def learn(self, request: Request) -> None:
        """Stores the model's turns of this request as the model was shown them."""


@runtime_checkable
class FollowsCapturedModes(Protocol):
    """A backend whose tool mode may have changed between the requests of one exchange, as mode `auto` does."""

    def expect(self, facts: Mapping[str, Any]) -> None:
        """Adds the facts that were captured of the next request; requests use them in this order."""


def replay_backend(
    facts: Mapping[str, Any], model: str, reads: list[ReadSettings], cut: ChunkMode, seed: int
) -> Backend:
    """Returns the backend that reported these facts.

    Args:
        facts: What the backend reported of itself, from the capture.
        model: The model.
        reads: How the captured text was read, one entry for each request.
        cut: How the captured text is split into chunks.
        seed: Makes random chunks repeatable.

    Raises: ConfigError: the facts are not those of a known backend.
    """
    if (factory := KINDS.get(facts.get("kind", ""))) is None:
        return _EventReplayBackend(facts, model)
    return factory(facts, model, reads, partial(Rechunker, cut, seed))
