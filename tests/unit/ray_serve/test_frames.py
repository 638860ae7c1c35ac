"""Replicas that fail at every place of their response, without Ray."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dragoman.backends.shared import codec
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start, TextDelta
from dragoman.ray_serve import frames
from dragoman.ray_serve.frames import ReplicaFailedError, ReplicaFrames

TOKENS = ["One", " two", " three", " four"]
DONE = ["done"]


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "RETRY_S", 0.0)


class Replica:
    """Sends these frames, then fails, unless the last is `DONE`."""

    def __init__(self, sent: Sequence[Sequence[Any]]) -> None:
        self._sent = list(sent)
        self.is_cancelled = False

    async def next_data(self) -> bytes | None:
        if not self._sent:
            raise ReplicaFailedError("ActorDiedError")
        return codec.encode(self._sent.pop(0))[codec.LENGTH_BYTES :]

    def cancel(self) -> None:
        self.is_cancelled = True


def response(opening: str = "", texts: Sequence[str] = TOKENS) -> list[list[Any]]:
    """The frames of a whole response, of which a part was written before."""
    known = next(count for count in range(len(texts) + 1) if "".join(texts[:count]) == opening)
    pieces = [opening, *texts[known:]] if opening else texts
    made: list[list[Any]] = [["attempt", "embedded", "", 0, 0], ["events", [Start("id", "m", 0)]]]
    for piece in pieces:
        made += [["text", piece], ["events", [TextDelta(piece)]]]
    return [*made, ["events", [Finish("stop")]], DONE]


class Replicas:
    """Replicas, of which each fails after so many frames of its response."""

    def __init__(self, *failures: int, make: Callable[[str], list[list[Any]]] = response) -> None:
        self._failures, self._make = list(failures), make
        self.openings: list[tuple[str, int] | None] = []

    def send(self, data: bytes) -> Replica:
        fields = codec.decode(data)[3]
        begun = fields.get("opening")
        self.openings.append(tuple(begun) if begun else None)
        whole = self._make(begun[0] if begun else "")
        return Replica(whole[: self._failures.pop(0)] if self._failures else whole)


async def received(replicas: Replicas, **fields: Any) -> tuple[list[AnyEvent], Any]:
    call = ("generate", "m", None, {"sends_text": True, **fields})
    answer = ReplicaFrames(replicas.send, "m", call, codec.encode(call)[codec.LENGTH_BYTES :])
    events: list[AnyEvent] = []
    while (frame := await answer.next_frame()) is not None and frame != DONE:
        if frame[0] == "events":
            events += frame[1]
    return events, frame


def text(events: Sequence[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("cut", range(len(response())))
async def test_response_is_complete_after_failure(cut: int) -> None:
    replicas = Replicas(cut)
    events, last = await received(replicas)
    assert last == DONE
    assert text(events) == "".join(TOKENS)
    assert [type(event) for event in events if not isinstance(event, TextDelta | Notice)] == [Start, Finish]
    assert len(replicas.openings) == (2 if cut < 11 else 1)
    assert [event.code for event in events if isinstance(event, Notice)] == (["continued"] if 1 < cut < 11 else [])


async def test_opening_grows_with_each_failure() -> None:
    replicas = Replicas(6, 6)
    events, last = await received(replicas)
    assert (text(events), last) == ("One two three four", DONE)
    assert replicas.openings == [None, ("One two", 2), ("One two three", 3)]


async def test_replica_that_fails_before_its_text_keeps_opening() -> None:
    replicas = Replicas(6, 1)
    events, _ = await received(replicas)
    assert text(events) == "One two three four"
    assert replicas.openings == [None, ("One two", 2), ("One two", 2)]


async def test_text_that_is_not_sent_cannot_be_continued() -> None:
    replicas = Replicas(6)
    events, last = await received(replicas, sends_text=False)
    assert last is None
    assert text(events) == "One two"


async def test_other_response_ends_the_stream() -> None:
    replicas = Replicas(6, make=lambda opening: response("", []) if opening else response())
    events, last = await received(replicas)
    assert last is None
    assert isinstance(events[-1], Notice | TextDelta)


async def test_failed_engine_is_continued() -> None:
    failure = ["events", [Failure(BackendUnavailableError("the engine ended"))]]
    replicas = Replicas(make=lambda opening: response(opening) if opening else [*response()[:6], failure, DONE])
    events, last = await received(replicas)
    assert (text(events), last) == ("One two three four", DONE)
    assert not any(isinstance(event, Failure) for event in events)


async def test_attempts_are_limited() -> None:
    replicas = Replicas(*[1] * 20)
    events, last = await asyncio.wait_for(received(replicas), 10)
    assert (events, last) == ([], None)
    assert len(replicas.openings) == frames.MAX_ATTEMPTS
