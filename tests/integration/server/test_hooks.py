"""Error hooks get each failed exchange with its id, and their own errors break no response."""

import json
from collections.abc import AsyncGenerator

import httpx2
import pytest

import dragoman
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, DragomanError, RequestError
from dragoman.core.events import AnyEvent, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support.fake_upstream import CHAT
from support.scripted_backend import Scripted, plain

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Heard:
    def __init__(self) -> None:
        self.errors: list[tuple[BaseException, str]] = []

    def __call__(self, error: BaseException, exchange_id: str) -> None:
        self.errors.append((error, exchange_id))


def raises(error: BaseException, exchange_id: str) -> None:
    raise RuntimeError("the hook's own")


async def breaks(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hel")
    raise BackendUnavailableError("gone")


async def bug(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    raise ZeroDivisionError
    yield


@pytest.mark.parametrize(
    ("script", "path", "body", "status", "kind"),
    [
        (plain, CHAT, {**HELLO, "messages": 7}, 400, RequestError),
        (plain, CHAT, {**HELLO, "model": "unknown"}, 404, DragomanError),
        (plain, "/v1/nothing", {}, 404, DragomanError),
        (plain, "/v1/embeddings", {"model": "m"}, 400, DragomanError),
        (breaks, CHAT, {**HELLO, "stream": True}, 200, BackendUnavailableError),
        (breaks, CHAT, HELLO, 503, BackendUnavailableError),
        (bug, CHAT, HELLO, 500, ZeroDivisionError),
        (plain, CHAT, HELLO, 200, None),
    ],
)
async def test_app_error_hook_gets_error_and_request_id(
    script: object, path: str, body: object, status: int, kind: type | None
) -> None:
    heard = Heard()
    app = App(Gateway([Scripted(script)]), ServerConfig(), on_error=[raises, heard])  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
        answer = await http.post(path, json=body)
    assert answer.status_code == status
    assert [id for _, id in heard.errors] == [answer.headers["x-request-id"]] * (kind is not None)
    assert all(isinstance(error, kind) for error, _ in heard.errors if kind)


def test_engine_session_error_hook_gets_error_and_id() -> None:
    heard = Heard()
    hooks = [raises, heard]
    with pytest.raises(RequestError):
        dragoman.EngineSession({**HELLO, "messages": 7}, "hermes", created=1, id="first", on_error=hooks)
    made = dragoman.EngineSession(HELLO, "hermes", created=1, on_error=hooks)
    with pytest.raises(DragomanError):
        made.feed(7)  # type: ignore[arg-type]
    assert json.loads(made.fail("the engine broke"))["error"]["message"] == "the engine broke"
    kinds = [(type(error).__name__, id) for error, id in heard.errors]
    assert kinds == [("RequestError", "first"), ("UsageError", made.id), ("BackendUnavailableError", made.id)]
    good = dragoman.EngineSession(HELLO, "hermes", created=1, on_error=hooks)
    good.feed("Hello")
    assert json.loads(good.close())["choices"][0]["message"]["content"] == "Hello"
    assert len(heard.errors) == 3
