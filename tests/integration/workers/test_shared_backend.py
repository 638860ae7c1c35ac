"""A backend in one event loop and the gateway in another behave as in one process, over the socket between them."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from dragoman.backends.embedded.engine_output import Done, Progress, TokenText
from dragoman.backends.shared import models_process
from dragoman.backends.shared.client import SharedBackend
from dragoman.backends.shared.models_process import ModelsProcess
from dragoman.backends.shared.server import WINDOW, BackendServer
from dragoman.core import errors
from dragoman.core.backend import (
    Attempts,
    Backend,
    EventStream,
    ExchangeContext,
    OpeningText,
    PromptProgress,
    ServedModel,
)
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import AnyEvent, Failure, Finish, Start, TextDelta
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Message, Request, Text
from dragoman.server.capture.recorder import CaptureRecorder
from support.events import all_events
from support.scripted_backend import eventually

T = TypeVar("T")
REQUEST = Request("m", (Message("user", (Text("hi"),)),))
ID = "0123456789abcdef01234567"


class Source(Backend):
    """A backend whose response is a script; every method of a backend, with results that can be recognized."""

    def __init__(self, script: Callable[[Request, ExchangeContext], AsyncGenerator[AnyEvent, None]]) -> None:
        self._script = script
        self.contexts: list[ExchangeContext] = []
        self.running = 0
        self.yielded = 0
        self.refreshed = 0

    def models(self) -> Sequence[ServedModel]:
        return (ServedModel("m", 4096, "owner", ("alias",), "A model", 1), *(ServedModel("new"),) * self.refreshed)

    async def refresh_models(self) -> None:
        self.refreshed += 1

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        self.contexts.append(context)
        self.running += 1
        try:
            async with aclosing(self._script(request, context)) as events:
                async for event in events:
                    self.yielded += 1
                    yield [event]
        finally:
            self.running -= 1

    async def count_tokens(self, request: Request) -> int | None:
        if request.model == "wrong":
            raise errors.RequestError("expected another", "$.model")
        return len(request.messages) + 41

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def health(self) -> Mapping[str, object]:
        return {"backend": "source", "ready": True, "active": self.running}

    def shows_images(self, model: str) -> bool:
        return False

    def describe(self, model: str) -> Mapping[str, object]:
        return {"kind": "source", "model": model}

    def request_as_shown(self, request: Request) -> Request:
        return Request("shown", request.messages)

    def secret_values(self) -> Sequence[str]:
        return ("a-secret",)

    def forwards(self, path: str, model: str) -> bool:
        return (path, model) == ("/v1/rerank", "m")

    async def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        began({"content-type": "text/plain"})
        yield f"{path} {headers}".encode()
        yield body


class ModelsThread:
    """The server in an event loop of its own, as in a process of its own."""

    def __init__(self, path: Path, source: Source) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = BackendServer({"source": source})
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._server.listen(path))

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        self._run(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@contextlib.contextmanager
def served(path: Path, source: Source) -> Iterator[ModelsThread]:
    thread = ModelsThread(path, source)
    try:
        yield thread
    finally:
        thread.stop()


@contextlib.asynccontextmanager
async def connected(
    folder: Path, script: Callable[[Request, ExchangeContext], AsyncGenerator[AnyEvent, None]]
) -> AsyncIterator[tuple[SharedBackend, Source]]:
    source = Source(script)
    with served(folder / "s", source):
        shared = SharedBackend(ModelsProcess(folder / "s"), "source", {"other": "own"}.get)
        await shared.start()
        try:
            yield shared, source
        finally:
            await shared.close()


def context(**more: Any) -> ExchangeContext:
    return ExchangeContext(ID, 1_800_000_000, random_id, **more)


async def all_of(shared: SharedBackend, context: ExchangeContext, request: Request = REQUEST) -> list[AnyEvent]:
    return await all_events(shared.generate(request, context))


async def plain(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
    yield Start(context.id, request.model, context.created)
    yield TextDelta("Hello")
    yield Finish("stop")


async def endless(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
    yield Start(context.id, request.model, context.created)
    while True:
        yield TextDelta("more")


async def test_events_and_context_arrive(tmp_path: Path) -> None:
    async with connected(tmp_path, plain) as (shared, source):
        values = {
            "id": ID,
            "created": 1_800_000_000,
            "new_id": random_id,
            "observer": None,
            "progress": None,
            "attempts": Attempts(),
            "opening": OpeningText("Hel", 1),
        }
        others = {"disabled_repairs": ("name",), "unavailable_tools": ("t",)}
        fields = {name: {**values, **others}.get(name, True) for name in ExchangeContext.__struct_fields__}
        sent = ExchangeContext(**cast(Any, fields))
        events = await all_of(shared, sent)
        assert events == [Start(ID, "m", 1_800_000_000), TextDelta("Hello"), Finish("stop")]
        (got,) = source.contexts
        for name in ("attempts", "client", "reserve"):  # which the process that routes needs
            del fields[name]
        assert {name: getattr(got, name) for name in fields} == fields


async def test_closed_generator_stops_model(tmp_path: Path) -> None:
    async with connected(tmp_path, endless) as (shared, source):
        async with aclosing(shared.generate(REQUEST, context())) as events:
            await anext(events)
            await anext(events)
            assert source.running == 1
        await eventually(lambda: not source.running)


async def test_cancelled_reader_stops_model(tmp_path: Path) -> None:
    async def silent(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        yield Start(context.id, request.model, context.created)
        await asyncio.Event().wait()

    async with connected(tmp_path, silent) as (shared, source):
        reading = asyncio.create_task(all_of(shared, context()))
        await eventually(lambda: source.running)
        reading.cancel()
        await asyncio.wait({reading})
        await eventually(lambda: not source.running)


async def test_slow_reader_stops_model(tmp_path: Path) -> None:
    """At most one window of events is ahead of the reader."""
    taken = 3 * WINDOW
    async with (
        connected(tmp_path, endless) as (shared, source),
        aclosing(shared.generate(REQUEST, context())) as events,
    ):
        for _ in range(taken):
            await anext(events)
        await eventually(lambda: source.yielded >= taken + WINDOW // 2)
        before = -1
        while before != source.yielded:  # until the model stands still, if it does
            before = source.yielded
            await asyncio.sleep(0.05)
        assert source.yielded <= taken + WINDOW + 1


@pytest.mark.parametrize(
    "error",
    [
        errors.RequestError("expected a, got b", "$.tools[0]"),
        errors.ContextOverflowError(10, 5),
        errors.QueueFullError("full", retry_after_s=7.0),
        errors.UpstreamError("no", status=429, retry_after_s=2.0, headers={"x": "y"}),
        errors.UpstreamTimeoutError("silent"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_error_arrives_with_class_and_fields(error: DragomanError, tmp_path: Path) -> None:
    async def early(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        if request.stream:
            yield Start("", "m", 0)
            yield Failure(error)
        raise error

    async with connected(tmp_path, early) as (shared, _):
        with pytest.raises(type(error)) as raised:
            await all_of(shared, context())
        assert vars(raised.value) == vars(error)
        with pytest.raises(type(error)):  # after Failure: no gateway reads on, but the connection does not hang
            await all_of(shared, context(), Request("m", (), stream=True))
        async with aclosing(shared.generate(Request("m", (), stream=True), context())) as events:
            _, (failure,) = await anext(events), await anext(events)
        assert isinstance(failure, Failure)
        assert type(failure.error) is type(error)
        assert vars(failure.error) == vars(error)


async def test_bug_is_logged_there_and_raised_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def bug(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        raise ZeroDivisionError
        yield

    async with connected(tmp_path, bug) as (shared, _):
        with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="ZeroDivisionError in the process"):
            await all_of(shared, context())
        assert any(record.exc_info for record in caplog.records)


async def test_all_other_methods_reach_backend(tmp_path: Path) -> None:
    async with connected(tmp_path, plain) as (shared, source):
        assert list(shared.models()) == list(source.models())
        assert shared.resolve_model_name("other") == "own"
        assert shared.resolve_model_name("unknown") is None
        assert await shared.count_tokens(REQUEST) == 42
        with pytest.raises(errors.RequestError, match=r"at \$\.model"):
            await shared.count_tokens(Request("wrong", ()))
        await shared.refresh_models()
        assert [model.id for model in shared.models()] == ["m", "new"]
        assert shared.health() == {"backend": "source", "ready": True, "active": 0}
        assert shared.shows_images("m") is False
        assert shared.describe("m") == {"kind": "source", "model": "m"}
        assert shared.request_as_shown(REQUEST) == Request("shown", REQUEST.messages)
        assert list(shared.secret_values()) == ["a-secret"]
        assert shared.forwards("/v1/rerank", "m")
        assert not shared.forwards("/v1/embeddings", "m")
        fields: dict[str, str] = {}
        pieces = [piece async for piece in shared.forward("/v1/rerank", b"\0\xff", {"a": "b"}, fields.update)]
        assert b"".join(pieces) == b"/v1/rerank {'a': 'b'}\0\xff"
        assert fields == {"content-type": "text/plain"}


async def test_health_is_updated(tmp_path: Path) -> None:
    async with connected(tmp_path, endless) as (shared, _):
        async with aclosing(shared.generate(REQUEST, context())) as events:
            await anext(events)
            await eventually(lambda: shared.health()["active"] == 1)
        await eventually(lambda: shared.health()["active"] == 0)


async def test_progress_reaches_exchange(tmp_path: Path) -> None:
    async def reads(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        assert context.progress is not None
        context.progress(PromptProgress(10, 20, "2 of 3 tools offered"))
        yield Start("", "m", 0)
        context.progress(PromptProgress(20, 20))
        yield Finish("stop")

    seen: list[PromptProgress] = []
    async with connected(tmp_path, reads) as (shared, _):
        await all_of(shared, context(progress=seen.append))
    assert seen == [PromptProgress(10, 20, "2 of 3 tools offered"), PromptProgress(20, 20)]


async def outputs() -> AsyncGenerator[object, None]:
    yield Progress(3, 0)
    yield TokenText("Hel")
    yield TokenText("lo")
    yield Done("stop", 2, 0)


async def broken() -> AsyncGenerator[object, None]:
    yield b"piece"
    raise errors.UpstreamError("broke off", status=502)


async def observed(request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
    """Three requests to a model: one is read to its end, one is left, one breaks off."""
    yield Start(context.id, context.new_id(), context.created)
    async with aclosing(context.wrap_model_output("completion", {"prompt": "x"}, outputs())) as pieces:
        async for _ in pieces:
            yield TextDelta("a")
    async with aclosing(context.wrap_model_output("completion", {"prompt": "y"}, outputs())) as pieces:
        await anext(pieces)
        await anext(pieces)
    with contextlib.suppress(DragomanError):
        async with aclosing(context.wrap_model_output("/v1/messages", b"body", broken())) as pieces:
            async for _ in pieces:
                pass
    yield Finish("stop")


async def test_model_output_reaches_observer(tmp_path: Path) -> None:
    """A capture has the same content as in one process, the ids that were generated included."""
    there, here = CaptureRecorder("POST", "/", {}), CaptureRecorder("POST", "/", {})
    async with connected(tmp_path, observed) as (shared, source):
        events = await all_events(here.wrap_context(context()).generate(shared, REQUEST))
        own = there.wrap_context(context())
        direct = await all_events(own.generate(source, REQUEST))
    assert [type(e) for e in events] == [type(e) for e in direct]
    start = events[0]
    assert isinstance(start, Start)
    assert here.ids == [start.model]
    assert len(here.backend_calls) == len(there.backend_calls) == 1
    arrived, expected = here.backend_calls[0], there.backend_calls[0]
    assert arrived.request == expected.request == Request("shown", REQUEST.messages)
    assert arrived.facts == expected.facts
    assert len(arrived.outputs) == 3
    for one, other in zip(arrived.outputs, expected.outputs, strict=True):
        assert (one.target, one.sent, one.abandoned) == (other.target, other.sent, other.abandoned)
        assert [piece for _, piece in one.pieces] == [piece for _, piece in other.pieces]
        assert type(one.error) is type(other.error)
    piece = arrived.outputs[0].pieces[1][1]
    assert piece._asdict() == {"text": "Hel"}


async def test_ended_process_fails_stream_and_next_call_waits_for_successor(tmp_path: Path) -> None:
    source = Source(endless)
    first = ModelsThread(tmp_path / "s", source)
    shared = SharedBackend(ModelsProcess(tmp_path / "s"), "source")
    await shared.start()
    events = shared.generate(REQUEST, context())
    assert isinstance((await anext(events))[0], Start)
    await asyncio.to_thread(first.stop)
    rest = await all_events(events)
    assert isinstance(rest[-1], Failure)
    assert type(rest[-1].error) is BackendUnavailableError
    await eventually(lambda: not shared.health()["ready"])
    assert [model.id for model in shared.models()] == ["m"]
    waiting = asyncio.create_task(shared.count_tokens(REQUEST))
    with served(tmp_path / "s", Source(plain)):
        assert await waiting == 42
        await eventually(lambda: shared.health()["ready"])
        assert await all_of(shared, context())
        await shared.close()


async def test_missing_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_process, "RECONNECT_S", 0.2)
    shared = SharedBackend(ModelsProcess(tmp_path / "nobody"), "source")
    with pytest.raises(BackendUnavailableError, match="does not answer"):
        await shared.start()
    with pytest.raises(BackendUnavailableError, match="ended"):
        await all_of(shared, context())
    assert await shared.count_tokens(REQUEST) is None
    assert shared.request_as_shown(REQUEST) == REQUEST
    with pytest.raises(BackendUnavailableError):
        shared.secret_values()
    assert shared.health() == {"backend": "source", "ready": False}
    await shared.close()
