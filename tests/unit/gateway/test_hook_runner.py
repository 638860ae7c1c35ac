"""Hooks are called in order and within limits, and what they return is checked."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dragoman.core.errors import ForbiddenError
from dragoman.core.messages import Message, Request, Text, ToolCall
from dragoman.gateway.hooks import hook_runner
from dragoman.gateway.hooks.hook import Hook
from dragoman.gateway.hooks.hook_runner import HookError, HookRunner

REQUEST = Request("m", (Message("user", (Text("hi"),)),), dialect="openai_chat", stream=True)
CALL = ToolCall("1", "ping", '{"secret": "s"}')


def runner(
    *functions: Callable[..., Any], step: str = "on_tool_call", fail_closed: bool = True, timeout_s: float = 60
) -> HookRunner:
    hooks = [Hook(f"h{number}", {step: function}) for number, function in enumerate(functions)]
    return HookRunner(hooks, timeout_s, fail_closed=fail_closed)


async def test_first_reason_ends_the_checks() -> None:
    asked: list[int] = []

    def hook(number: int, reason: str | None) -> Callable[..., str | None]:
        def on_tool_call(call: ToolCall, request: Request) -> str | None:
            asked.append(number)
            return reason

        return on_tool_call

    hooks = runner(hook(0, None), hook(1, ""), hook(2, "no"), hook(3, "never asked"))
    assert await hooks.veto(CALL, REQUEST) == "no"
    assert asked == [0, 1, 2]


async def test_hook_runs_in_its_own_thread_or_in_the_event_loop() -> None:
    names: list[str] = []

    async def in_loop(call: ToolCall, request: Request) -> None:
        names.append(threading.current_thread().name)

    def in_thread(call: ToolCall, request: Request) -> None:
        names.append(threading.current_thread().name)

    assert await runner(in_loop, in_thread).veto(CALL, REQUEST) == ""
    assert names == [threading.main_thread().name, "hook"]


async def test_error_for_clients_is_the_reason() -> None:
    def hook(call: ToolCall, request: Request) -> str:
        raise ForbiddenError("not here")

    assert await runner(hook).veto(CALL, REQUEST) == "not here"


@pytest.mark.parametrize("fail_closed", [True, False])
async def test_wrong_result_is_a_failure(fail_closed: bool, caplog: pytest.LogCaptureFixture) -> None:
    hooks = runner(lambda call, request: True, fail_closed=fail_closed)
    assert await hooks.veto(CALL, REQUEST) == ("its check failed" if fail_closed else "")
    assert "hook 'h0': on_tool_call returned no text: bool" in caplog.text


async def test_async_hook_that_takes_too_long_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    cancelled = asyncio.Event()

    async def hook(call: ToolCall, request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert await runner(hook, timeout_s=0.05).veto(CALL, REQUEST) == "its check failed"
    assert cancelled.is_set()
    assert "took more than 0.05 s" in caplog.text


async def test_hooks_that_never_return_do_not_use_up_threads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook_runner, "MAX_THREADS", 2)
    release, started = threading.Event(), []

    def hook(call: ToolCall, request: Request) -> None:
        started.append(call)
        release.wait()

    hooks = runner(hook, timeout_s=0.05)
    try:
        for _ in range(4):
            assert await hooks.veto(CALL, REQUEST) == "its check failed"
    finally:
        release.set()
    assert len(started) == 2
    assert caplog.text.count("was not called: 2 calls of hooks have not returned") == 2


async def test_requests_pass_all_hooks_and_keep_what_the_response_depends_on() -> None:
    def first(request: Request) -> Request:
        return msgspec.structs.replace(request, max_tokens=5, stream=False, dialect="other")

    async def second(request: Request) -> None:
        assert request.max_tokens == 5

    changed = await runner(first, second, step="on_request").change_request(REQUEST)
    assert changed == msgspec.structs.replace(REQUEST, max_tokens=5)


@pytest.mark.parametrize("fail_closed", [True, False])
async def test_failing_request_hook(fail_closed: bool) -> None:
    hooks = runner(lambda request: {"not": "a request"}, step="on_request", fail_closed=fail_closed)
    if not fail_closed:
        assert await hooks.change_request(REQUEST) is REQUEST
        return
    with pytest.raises(HookError, match="the hook 'h0' failed, so the request was not sent"):
        await hooks.change_request(REQUEST)


async def test_log_has_the_place_of_a_failure_and_not_its_message(caplog: pytest.LogCaptureFixture) -> None:
    def hook(call: ToolCall, request: Request) -> None:
        raise ValueError(call.arguments)

    caplog.set_level(logging.DEBUG)
    await runner(hook).veto(CALL, REQUEST)
    assert "hook 'h0': on_tool_call failed: ValueError at " in caplog.text
    assert "test_hook_runner.py, line " in caplog.text
    assert "secret" not in caplog.text
