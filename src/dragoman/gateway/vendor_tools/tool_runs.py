"""Runs the calls of one response: several at once, in the order of the calls, within all limits.

Calls start in order, at most `max_concurrent_calls` at once, and their results are read in order. A call is cancelled
when its time or that of the response is over, or when the client has left.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import RemoteError, loggable_message
from dragoman.core.messages import Request
from dragoman.gateway.vendor_tools.plan import VendorToolPlan
from dragoman.gateway.vendor_tools.tool_search import BUILT_IN
from dragoman.vendor_tools.earlier_messages import EarlierMessages
from dragoman.vendor_tools.executor import ToolExecutor, ToolRunObserver
from dragoman.vendor_tools.tool import (
    TOOL_SEARCH,
    FetchedPage,
    SearchHit,
    ToolRunResult,
    VendorTool,
    VendorToolCall,
    error_result,
    output_result,
    page_result,
    search_result,
    tools_result,
)

log = logging.getLogger("dragoman.gateway.vendor_tools")

MAX_ROUNDS: Final = 8
TIMEOUT_S: Final = 120.0
MAX_RESULT_CHARS: Final = 20_000
MAX_CONCURRENT_CALLS: Final = 4
MAX_TOKENS: Final = 1_000_000
MAX_CALLS: Final = 32
"""Of one round that are run; the results of more would fill the prompt of the next."""
_CUT: Final = "\n[…]"
_OK: Final = "ok"
_CANCELLED: Final = "cancelled"


class ToolRunRecord(NamedTuple):
    """What is counted of a call that was run."""

    kind: str
    outcome: str
    """`ok`, an error code of `ToolRunResult`, or `cancelled`."""
    seconds: float


OnToolRun: TypeAlias = Callable[[ToolRunRecord], None]
"""Called after each run."""
VetoToolRun: TypeAlias = Callable[[VendorToolCall, Request], Awaitable[str]]
"""Returns the reason why a call of this request is not run, for the model; "": it is run."""


@dataclass(frozen=True, slots=True)
class ToolRunSettings:
    """What runs calls, and the limits."""

    executors: Mapping[str, ToolExecutor]
    """By kind of tool; those of `BUILT_IN` are always added."""
    max_rounds: int = MAX_ROUNDS
    """Maximum responses of the model to one request."""
    timeout_s: float = TIMEOUT_S
    """Time for all calls of a response, without that of the model, after which no further round begins."""
    max_result_chars: int = MAX_RESULT_CHARS
    """Maximum characters of a result."""
    max_concurrent_calls: int = MAX_CONCURRENT_CALLS
    """Maximum calls of one response that run at once."""
    max_tokens: int = MAX_TOKENS
    """Tokens of all rounds, prompts included, after which no further round begins; 0: no limit."""
    max_cost_usd: float = 0.0
    """Reported cost of all rounds after which no further round begins; 0: no limit."""
    search_above: int = 0
    """Number of tools above which the model has to find them by a search; 0: never."""
    veto: VetoToolRun | None = field(default=None, kw_only=True)
    """Decides about each call before it is run; None: all are run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "executors", {**BUILT_IN, **self.executors})

    def executors_for(self, *models: str) -> Mapping[str, ToolExecutor]:
        """Returns the executors that a model of one of these names may use."""
        return {kind: executor for kind, executor in self.executors.items() if executor.admits(*models)}


class CallRunner:
    """Runs the calls of one response."""

    def __init__(self, settings: ToolRunSettings, plan: VendorToolPlan, on_run: OnToolRun | None) -> None:
        """
        Args:
            settings: The executors and limits.
            plan: What the gateway does about the tools.
            on_run: Is called after each run.
        """
        self._settings, self._plan, self._on_run = settings, plan, on_run
        self.context: ExchangeContext | None = None
        """The exchange."""
        self.left_s = settings.timeout_s
        """Time that is left for calls."""
        self._deadline = 0.0
        self._earlier = EarlierMessages(())
        self._free = asyncio.Semaphore(settings.max_concurrent_calls)
        self.uses = Counter[str]()
        """Calls by kind of tool."""
        self.hits: list[SearchHit] = []
        """What all searches found."""
        self.pages: list[tuple[VendorTool, FetchedPage]] = []
        """The pages that were fetched, in order."""

    @asynccontextmanager
    async def running(self, calls: Sequence[VendorToolCall]) -> AsyncIterator[Sequence[asyncio.Task[ToolRunResult]]]:
        """Starts the calls and returns their tasks, in order; at the end those that still run are cancelled."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._deadline = began_s + self.left_s
        self._earlier = EarlierMessages([*self._plan.request.messages, *self._plan.rounds])
        admitted = [self._admit(call) for call in calls[:MAX_CALLS]]
        refused = [error_result("too_many_requests")] * (len(calls) - MAX_CALLS)
        tasks = [
            asyncio.create_task(self._run(call, runs)) for call, runs in zip(calls, [*admitted, *refused], strict=True)
        ]
        try:
            yield tasks
            for call, task in zip(calls, tasks, strict=True):
                self.hits += task.result().hits
                if (page := task.result().page) is not None:
                    self.pages.append((call.tool, page))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.left_s -= loop.time() - began_s

    def _admit(self, call: VendorToolCall) -> ToolExecutor | ToolRunResult:
        """Returns what runs the call, which is counted, or the error of a call that may not run."""
        kind, most = call.tool.kind, call.tool.max_uses
        executor = self._settings.executors.get(kind) if call.tool.name in self._plan.run else None
        if executor is None:
            return error_result("unavailable")
        used = self.uses[kind]
        if self._plan.codec.counts_together and kind != TOOL_SEARCH:
            used = self.uses.total() - self.uses[TOOL_SEARCH]
        if most is not None and used >= most:
            return error_result("max_uses_exceeded")
        self.uses[kind] += 1
        return executor

    async def _run(self, call: VendorToolCall, executor: ToolExecutor | ToolRunResult) -> ToolRunResult:
        if isinstance(executor, ToolRunResult):
            return executor
        kind = call.tool.kind
        observer: object = self.context and self.context.observer
        run = partial(self._run_limited, executor, call)
        if isinstance(observer, ToolRunObserver):
            run = partial(observer.run_tool, kind, call.arguments, run)
        if self.context is not None and (spans := self.context.attempts.spans) is not None:
            run = partial(spans.run_tool, call.tool.name, call.id, run)
        async with self._free:
            began_s, outcome = time.monotonic(), _CANCELLED
            try:
                result = await run()
                outcome = result.error or _OK
            finally:
                self._report(ToolRunRecord(kind, outcome, time.monotonic() - began_s))
        return result

    def _report(self, run: ToolRunRecord) -> None:
        log.info("ran %s in %d ms: %s", run.kind, round(run.seconds * 1000), run.outcome)
        if self._on_run is not None:
            self._on_run(run)

    async def _run_limited(self, executor: ToolExecutor, call: VendorToolCall) -> ToolRunResult:
        """Runs a call within its limits of time and size; its problems are results."""
        kind, settings = call.tool.kind, self._settings
        now, own_s = asyncio.get_running_loop().time(), executor.timeout_s
        ends_at = self._deadline if own_s is None else min(self._deadline, now + own_s)
        try:
            async with asyncio.timeout_at(ends_at):
                if (code := await executor.refusal(call, self._earlier)) is not None:
                    return error_result(code)
                if settings.veto is not None and (reason := await settings.veto(call, self._plan.request)):
                    return replace(error_result("unavailable"), text=reason)
                result = await executor.run(call)
        except TimeoutError:
            limit = settings.timeout_s if own_s is None or ends_at == self._deadline else own_s
            log.warning("a call of %s was ended: it took too long, limit %g s", kind, limit)
            return error_result("unavailable")
        except RemoteError as error:
            log.warning("a call of %s failed: %s", kind, loggable_message(error))
            return error_result("unavailable")
        except Exception:
            log.exception("bug: a call of %s failed", kind)
            return error_result("unavailable")
        most = settings.max_result_chars
        if result.hits:
            return search_result(result.hits, most)
        if result.page is not None:
            return page_result(result.page, most)
        if result.output is not None:
            return replace(result, text=(cut := output_result(result.output, most)).text, output=cut.output)
        if result.tools:
            return tools_result(result.tools, most)
        return result if len(result.text) <= most else replace(result, text=result.text[:most] + _CUT)
