"""The view of an exchange while it runs: the parts that have changed, at most four times a second.

No view is built without a watcher, nor while nothing has arrived. How the model's text is read is found out once for
each request to a model. A view that takes long to build is built less often.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from dragoman.console.api import ApiError
from dragoman.console.exchange.capture_work import CaptureWork
from dragoman.console.exchange.exchange_view import (
    exchange_view,
    find_row,
    large_running_view,
    previous_request,
    view_of,
)
from dragoman.console.exchange.lanes.build_lanes import build_lanes, read_settings
from dragoman.console.exchange.lanes.model_lane import Reads
from dragoman.console.exchange.remedy_facts import fit_view
from dragoman.console.exchange.views import ExchangeView
from dragoman.console.services import ConsoleServices
from dragoman.core.errors import DragomanError
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.recorder import CaptureRecorder

INTERVAL_S: Final = 0.25
_LOOK_S: Final = 0.05
_SHARE: Final = 4
"""A view is built again after so many times as long as it took, so that a page uses a part of a core only."""


async def live_views(
    services: ConsoleServices, work: CaptureWork, id: str, ended: ExchangeView | None = None
) -> AsyncGenerator[tuple[str, object], None]:
    """Yields the parts of the view that have changed, and at the end `done`.

    Args:
        services: The services of the console.
        work: Builds the view of the ended exchange.
        id: The request id.
        ended: The view of an exchange that has ended already.
    """
    sent: dict[str, Any] = {}
    with services.feed.watch():  # so that the exchange is remembered when it ends
        async for view in _running_views(services, id):
            if changed := _changes(sent, view):
                yield "view", changed
        try:
            view = ended or await exchange_view(services, work, id)
        except DragomanError as error:
            yield "problem", ApiError(code="not_shown", message=str(error))
            yield "done", {}
            return
    if changed := _changes(sent, view):
        yield "view", changed
    yield "done", {}


async def _running_views(services: ConsoleServices, id: str) -> AsyncGenerator[ExchangeView, None]:
    """Yields views while the exchange runs."""
    builder, is_first = _LiveBuilder(services, id), True
    seen: tuple[int, ...] = ()
    while (running := services.feed.running.get(id)) is not None:
        progress = _progress(running.capture) if running.capture else ()
        if progress == seen and not is_first:
            await asyncio.sleep(_LOOK_S)
            continue
        seen, began_s, is_first = progress, time.monotonic(), False
        yield await builder.build()
        took_s = time.monotonic() - began_s
        await asyncio.sleep(max(INTERVAL_S - took_s, _SHARE * took_s))


def _progress(capture: CaptureRecorder) -> tuple[int, ...]:
    """Returns numbers that change whenever something is captured."""
    outputs = [output for call in capture.backend_calls for output in call.outputs]
    received = sum(len(output.pieces) for output in outputs)
    ended = sum(output.error is not None for output in outputs)
    events = sum(len(call.events) for call in capture.backend_calls)
    return len(capture.reply), len(capture.events), len(outputs), received, ended, events, len(capture.tool_runs)


class _LiveBuilder:
    """Builds the views of one exchange that runs."""

    def __init__(self, services: ConsoleServices, id: str) -> None:
        self._services, self._id = services, id
        self._previous: tuple[str, bytes | None] | None = None
        """Id and body of the previous request; None: not searched yet."""
        self._reads: Reads = {}
        self._known = 0
        """Number of requests to models of which it is known how their text is read."""

    async def build(self) -> ExchangeView:
        """Returns the view now."""
        if (large := large_running_view(self._services, self._id)) is not None:
            return large
        capture = await self._services.captures.load(self._id)
        row = await find_row(self._services, self._id, capture)
        if capture is None:
            return ExchangeView(id=self._id, row=row, is_captured=False, is_running=True)
        return await asyncio.to_thread(self._build, capture, row)

    def _build(self, capture: LoadedCapture, row: Any) -> ExchangeView:
        if self._previous is None and "body" in capture.files:
            found = previous_request(self._services, self._id, capture)
            self._previous = (found.id, found.body) if found else ("", None)
        count = sum(capture.output_count(n) for n in range(1, capture.backend_call_count + 1))
        if count != self._known:
            self._reads, self._known = read_settings(capture), count
        id, body = self._previous or ("", None)
        view = view_of(self._id, row, build_lanes(capture, body, self._reads), previous_id=id, is_running=True)
        return fit_view(self._services, view, capture.files.get("body", b""))


def _changes(sent: dict[str, Any], view: ExchangeView) -> dict[str, Any]:
    """Returns the fields that have changed; of the lanes only those that have. `sent` is updated."""
    changed: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(view).items():
        if name == "lanes":
            known = {each.name: each for each in sent.get(name, ())}
            lanes = [each for each in value if known.get(each.name) != each]
            if lanes:
                changed[name] = lanes
        elif name not in sent or sent[name] != value:
            changed[name] = value
        sent[name] = value
    return changed
