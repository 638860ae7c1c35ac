"""Calls the functions of hooks: in the order of their names, each within a time limit.

An `async` function runs in the event loop, any other in a thread of its own, because it may wait. A thread cannot be
ended: one that takes too long is left alone, and while `MAX_THREADS` are busy every further call fails at once.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dragoman.core.errors import DragomanError, quote
from dragoman.core.messages import Reply, Request, ToolCall
from dragoman.gateway.hooks.hook import Hook, HookFunction
from dragoman.plugins import failure_place

log = logging.getLogger("dragoman.hooks")

MAX_THREADS: Final = 32
"""Calls of plain functions that run at once."""
_FIXED_FIELDS: Final = ("stream", "stream_usage", "dialect", "store", "choices", "previous_response", "headers")
"""Fields of a request that hooks cannot change: the response is written by them."""


class HookError(DragomanError):
    """A hook failed: an operator has to repair it, or to remove it from `hooks.enabled`."""


class _HookFailedError(Exception):
    """A function raised, took too long, or returned something of a wrong type; the message is safe to log."""


class HookRunner:
    """The enabled hooks."""

    def __init__(self, hooks: Sequence[Hook], timeout_s: float, *, fail_closed: bool) -> None:
        """
        Args:
            hooks: The hooks, in order.
            timeout_s: The time limit of each call.
            fail_closed: Whether a request or tool call is refused if a hook fails.
        """
        self._hooks, self._timeout_s, self._fail_closed = tuple(hooks), timeout_s, fail_closed
        self._threads = 0
        self._tasks = set[asyncio.Task[None]]()

    def has(self, step: str) -> bool:
        """Returns whether a hook has this function."""
        return any(step in hook.functions for hook in self._hooks)

    async def change_request(self, request: Request) -> Request:
        """Returns the request as the hooks want it.

        Raises:
            DragomanError: A hook refuses it, or fails.
        """
        for hook in self._hooks:
            if (function := hook.functions.get("on_request")) is None:
                continue
            try:
                changed = await self._call(hook, "on_request", function, request)
                if changed is not None:
                    request = _with_fixed_fields(changed, request)
            except _HookFailedError as error:
                log.error("%s", error)
                if self._fail_closed:
                    raise HookError(f"the hook {quote(hook.name)} failed, so the request was not sent") from None
        return request

    async def veto(self, call: ToolCall, request: Request) -> str:
        """Returns the first reason of a hook against a call; "" if all allow it."""
        for hook in self._hooks:
            if (function := hook.functions.get("on_tool_call")) is None:
                continue
            try:
                reason = await self._call(hook, "on_tool_call", function, call, request)
                if reason is not None and not isinstance(reason, str):
                    raise _HookFailedError(f"{_name(hook, 'on_tool_call')} returned no text: {type(reason).__name__}")
            except _HookFailedError as error:
                log.error("%s", error)
                reason = "its check failed" if self._fail_closed else None
            except DragomanError as error:
                reason = error.message
            if isinstance(reason, str) and reason:
                log.info("hook %s refused a call of %s", hook.name, call.name)
                return reason
        return ""

    def observe_response(self, reply: Reply, request: Request) -> None:
        """Calls the hooks with a complete response, after it was sent; nothing waits for them."""
        self._observe("on_response", reply, request)

    def observe_error(self, error: BaseException, exchange_id: str) -> None:
        """Calls the hooks with the error of an exchange; nothing waits for them."""
        self._observe("on_error", error, exchange_id)

    def _observe(self, step: str, *args: object) -> None:
        async def observe(hook: Hook, function: HookFunction) -> None:
            try:
                await self._call(hook, step, function, *args)
            except (_HookFailedError, DragomanError) as error:
                log.error("%s", error if isinstance(error, _HookFailedError) else f"{_name(hook, step)} failed")

        for hook in self._hooks:
            if (function := hook.functions.get(step)) is not None:
                task = asyncio.create_task(observe(hook, function))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _call(self, hook: Hook, step: str, function: HookFunction, *args: object) -> Any:
        """Returns the result of a function.

        Raises:
            DragomanError: The function raised it.
            _HookFailedError: The function failed in another way.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                result = function(*args) if _is_async(function) else await self._in_thread(function, *args)
                return await result if inspect.isawaitable(result) else result
        except DragomanError:
            raise
        except TimeoutError:
            raise _HookFailedError(f"{_name(hook, step)} took more than {self._timeout_s:g} s") from None
        except _HookFailedError as error:
            raise _HookFailedError(f"{_name(hook, step)} {error}") from None
        except Exception as error:  # noqa: BLE001 a hook is code of another program
            # Without the message, which may quote the conversation.
            described = f"{type(error).__name__} at {failure_place(error)}"
            raise _HookFailedError(f"{_name(hook, step)} failed: {described}") from None

    async def _in_thread(self, function: HookFunction, *args: object) -> object:
        if self._threads >= MAX_THREADS:
            raise _HookFailedError(f"was not called: {MAX_THREADS} calls of hooks have not returned")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()

        def run() -> None:
            try:
                settle: Callable[[], None] = _settle(done, result=function(*args))
            except BaseException as error:  # noqa: BLE001 it is raised where the function was called
                settle = _settle(done, error=error)
            try:
                loop.call_soon_threadsafe(settle)
                loop.call_soon_threadsafe(self._leave_thread)
            except RuntimeError:  # the loop was closed meanwhile
                return

        self._threads += 1
        threading.Thread(target=run, name="hook", daemon=True).start()
        return await done

    def _leave_thread(self) -> None:
        self._threads -= 1


def _settle(
    done: "asyncio.Future[object]", result: object = None, error: BaseException | None = None
) -> Callable[[], None]:
    def settle() -> None:
        if done.done():  # nothing waits any more
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    return settle


def _is_async(function: HookFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _name(hook: Hook, step: str) -> str:
    return f"hook {hook.name!r}: {step}"


def _with_fixed_fields(changed: object, request: Request) -> Request:
    if not isinstance(changed, Request):
        raise _HookFailedError(f"on_request returned no request: {type(changed).__name__}")
    return msgspec.structs.replace(changed, **{name: getattr(request, name) for name in _FIXED_FIELDS})
