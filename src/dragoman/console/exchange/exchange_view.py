"""Finds an exchange by its request id, and makes its view: from the records, the running exchanges and the captures."""

import asyncio
import re
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from dragoman.console.api import TrafficRow
from dragoman.console.exchange.capture_work import LARGE_BYTES, CaptureWork, WorkOrder
from dragoman.console.exchange.conversation import PreviousRequest, find_previous
from dragoman.console.exchange.diagnosis import diagnose
from dragoman.console.exchange.lanes.build_lanes import ExchangeLanes
from dragoman.console.exchange.lanes.notes import warning_note
from dragoman.console.exchange.remedy_facts import fit_view
from dragoman.console.exchange.views import ExchangeNote, ExchangeView
from dragoman.console.services import ConsoleServices
from dragoman.console.traffic.history import records_connection
from dragoman.console.traffic.rows import row_of_facts, row_of_log, row_of_record, row_of_running
from dragoman.core.errors import BackendUnavailableError, NotFoundError, quote
from dragoman.server.capture.load import LoadedCapture

MAX_ID_CHARS = 100
_TOO_LARGE: Final = ExchangeNote(
    code="left_out", message="the exchange is large, so its lanes are built once, when it has ended"
)
_PRODUCT: Final = re.compile(r"[\w.-]{1,32}(?=/|$)", re.ASCII)


async def exchange_view(services: ConsoleServices, work: CaptureWork, id: str) -> ExchangeView:
    """Returns the view of an exchange.

    Args:
        services: The services of the console.
        work: Builds the lanes.
        id: The request id.

    Raises:
        NotFoundError: Nothing is known of it.
        ConfigError: Its capture is damaged.
    """
    is_running = services.captures.is_running(id)
    if (large := large_running_view(services, id)) is not None:
        return large
    capture = await services.captures.load(id)
    row = with_product(await find_row(services, id, capture), capture)
    diagnosis = await asyncio.to_thread(diagnose, services, row)
    if capture is None:
        notes = tuple(warning_note(label.partition(":")[0], label) for label in dict.fromkeys(row.warnings))
        view = ExchangeView(id=id, row=row, is_captured=False, is_running=is_running, notes=notes, diagnosis=diagnosis)
        return fit_view(services, view)
    order = WorkOrder(name=capture.name, files=capture.files, operation="view")
    result = await work.run(order, partial(services.captures.earlier, id))
    assert result.lanes is not None
    view = view_of(id, row, result.lanes, previous_id=result.previous_id, is_running=is_running)
    body = capture.files.get("body", b"")
    return await asyncio.to_thread(fit_view, services, replace(view, diagnosis=diagnosis), body)


def with_product(row: TrafficRow, capture: LoadedCapture | None) -> TrafficRow:
    """Returns the row with the product of the captured `user-agent` header in place of an agent that is not known.

    Args:
        row: The row.
        capture: The exchange; None: it is not captured.
    """
    if row.agent or capture is None:
        return row
    header = str(capture.json("request.json").get("headers", {}).get("user-agent", ""))
    product = _PRODUCT.match(header)
    return replace(row, agent=product[0]) if product else row


def large_running_view(services: ConsoleServices, id: str) -> ExchangeView | None:
    """Returns the view without lanes of a running exchange whose lanes would take too long to build again and again.

    Args:
        services: The services of the console.
        id: The request id.

    Returns:
        The view; None: the exchange has ended, or is not large.
    """
    running = services.feed.running.get(id)
    if running is None or running.capture is None or running.capture.size_bytes <= LARGE_BYTES:
        return None
    row = row_of_running(running.record, is_captured=True)
    return ExchangeView(id=id, row=row, is_captured=True, is_running=True, notes=(_TOO_LARGE,))


def view_of(
    id: str, row: TrafficRow, lanes: ExchangeLanes, *, previous_id: str = "", is_running: bool = False
) -> ExchangeView:
    """Returns the view with these lanes.

    Args:
        id: The request id.
        row: The row of the list.
        lanes: The lanes.
        previous_id: The previous request of the conversation.
        is_running: Whether the exchange still runs.
    """
    return ExchangeView(
        id=id,
        row=row,
        is_captured=True,
        is_running=is_running,
        lanes=lanes.lanes,
        notes=lanes.notes,
        previous_id=previous_id,
        cache_note=lanes.cache_note,
        sent_calls=lanes.sent_calls,
    )


def previous_request(services: ConsoleServices, id: str, capture: LoadedCapture) -> PreviousRequest | None:
    """Returns the previous request of the conversation, if it is captured.

    Args:
        services: The services of the console.
        id: The request id.
        capture: The exchange.
    """
    body = capture.files.get("body", b"")
    if not body:
        return None
    ids, read = services.captures.earlier(id)
    return find_previous(capture.files.get("request.json", b""), body, ids, read)


async def find_row(services: ConsoleServices, id: str, capture: LoadedCapture | None) -> TrafficRow:
    """Returns the row of an exchange.

    Args:
        services: The services of the console.
        id: The request id.
        capture: Its capture; None: it was not captured.

    Raises:
        NotFoundError: Nothing is known of it.
    """
    is_captured = capture is not None
    if (running := services.feed.running.get(id)) is not None:
        return row_of_running(running.record, is_captured)
    for record in services.feed.recent:
        if f"req_{record.id}" == id:
            return row_of_record(record, is_captured)
    try:
        if (row := await asyncio.to_thread(_recorded_row, services, id, is_captured)) is not None:
            return row
    except BackendUnavailableError:
        if capture is None:
            raise
    if capture is not None:
        return _captured_row(id, capture)
    raise NotFoundError(f"no exchange {quote(id[:MAX_ID_CHARS])} is known: it was not recorded, or it has been deleted")


def _recorded_row(services: ConsoleServices, id: str, is_captured: bool) -> TrafficRow | None:
    from dragoman.records.reports.exchange_log import find_exchanges

    with records_connection(services.config) as connection:
        entries = [] if connection is None else find_exchanges(connection, id, 1)
    return next((row_of_log(e, is_captured) for e in entries if f"req_{e.values['id']}" == id), None)


def _captured_row(id: str, capture: LoadedCapture) -> TrafficRow:
    facts: dict[str, Any] = capture.json("summary.json").get("log", {})
    try:
        began = datetime.fromisoformat(str(facts.get("time", ""))).replace(tzinfo=UTC).timestamp()
    except ValueError:
        began = float(capture.json("summary.json").get("context", {}).get("created", 0))
    return replace(row_of_facts(facts, began + facts.get("ms", 0) / 1000), id=id)
