"""The lane of the response that the client got."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dragoman.console.exchange.lanes.notes import call_notes, error_note, warned_note
from dragoman.console.exchange.lanes.reply_items import ReplyItem, body_items, stream_items
from dragoman.console.exchange.lanes.traced_events import TracedCall, TracedEvents
from dragoman.console.exchange.views import ExchangeNote, Lane, LaneBlock, Segment, lane, segments
from dragoman.server.capture.files import chunk_from_json
from dragoman.server.capture.load import LoadedCapture


class ClientReply(NamedTuple):
    """A response, as its head and its items."""

    status: int
    headers: Mapping[str, str]
    items: tuple[ReplyItem, ...]
    size: int
    ms: int

    def texts(self, kind: str) -> list[str]:
        """Returns the items of `text` or `reasoning`, whose numbers are those of the links."""
        return [item.text for item in self.items if item.kind == kind]

    @property
    def calls(self) -> list[ReplyItem]:
        """The calls, whose numbers are those of the links."""
        return [item for item in self.items if item.kind == "call"]


def read_reply(capture: LoadedCapture) -> ClientReply:
    """Returns the response of a captured exchange."""
    status, headers, ms = 0, dict[str, str](), 0
    chunks: list[tuple[int, bytes]] = []
    for line in capture.lines("reply.jsonl"):
        if "status" in line:
            status, headers, ms = line["status"], line.get("headers", {}), line.get("ms", 0)
        else:
            chunks.append((line.get("ms", 0), chunk_from_json(line)))
    is_stream = "event-stream" in headers.get("content-type", "")
    body = b"".join(data for _, data in chunks)
    last_ms = chunks[-1][0] if chunks else ms
    items = stream_items(chunks) if is_stream else body_items(body, last_ms) if body else []
    return ClientReply(status, headers, tuple(items), len(body), ms)


def reply_lane(reply: ClientReply, events: TracedEvents) -> Lane:
    """Returns the lane.

    Args:
        reply: The response.
        events: The events for the client, for the warnings about each call.
    """
    numbers = {"text": 0, "reasoning": 0, "call": 0}
    blocks = [_head(reply, events)] if reply.status else []
    notes = {number: call_notes(call) for number, call in enumerate(_passed(events.calls, reply.calls))}
    for item in reply.items:
        link = f"{item.kind}:{numbers[item.kind]}" if item.kind in numbers else ""
        blocks.append(_block(item, link, notes.get(numbers["call"], ()) if item.kind == "call" else ()))
        if link:
            numbers[item.kind] += 1
    return lane("reply", "what the client got", _summary(reply, numbers), blocks)


def _passed(calls: Sequence[TracedCall], sent: Sequence[ReplyItem]) -> Iterable[TracedCall]:
    """Returns the call of each call in the response, by id, else by position."""
    by_id = {call.id: call for call in calls if call.id}
    for number, item in enumerate(sent):
        known = next((call for id, call in by_id.items() if item.id.endswith(id)), None) if item.id else None
        if known or number < len(calls):
            yield known or calls[number]


def _head(reply: ClientReply, events: TracedEvents) -> LaneBlock:
    """Returns status and headers, with the warnings that belong to no call."""
    of_calls = [warned for call in events.calls for warned in call.warnings]
    notes = [warned_note(each) for each in events.warnings if not any(each is one for one in of_calls)]
    if events.error:
        notes.append(error_note(events.error))
    lines = "\n".join(f"{name}: {value}" for name, value in reply.headers.items())
    parts = (*segments(f"HTTP {reply.status}", "name", notes=notes), *segments(f"\n{lines}", "plain"))
    return LaneBlock(title="status and headers", segments=parts, ms=reply.ms)


def _block(item: ReplyItem, link: str, notes: Sequence[ExchangeNote]) -> LaneBlock:
    times = f"{item.ms} ms" if item.ms == item.last_ms else f"{item.ms} to {item.last_ms} ms"
    count = f"{len(item.pieces)} {'piece' if len(item.pieces) == 1 else 'pieces'}, {times}"
    parts: tuple[Segment, ...]
    if item.kind == "call":
        parts = (
            *segments(item.name, "name", link, notes),
            *segments(" ", "plain", link),
            *segments(item.text, "arguments", link),
        )
        title = f"tool call {item.name} · {count}"
    elif item.kind == "other":
        parts, title = segments(item.text.rstrip("\n"), "json"), item.name
    else:
        parts, title = segments(item.text, item.kind, link), f"{item.kind} · {count}"
    return LaneBlock(title=title, segments=parts, link=link, ms=item.ms)


def _summary(reply: ClientReply, numbers: Mapping[str, int]) -> str:
    found = [f"{count} {_name(kind, count)}" for kind, count in numbers.items() if count]
    return ", ".join([f"status {reply.status}" if reply.status else "nothing yet", *found, f"{reply.size:,} bytes"])


def _name(kind: str, count: int) -> str:
    names: dict[str, Any] = {"text": "text", "reasoning": "reasoning", "call": "tool call"}
    return f"{names[kind]}{'s' * (count > 1 and kind != 'reasoning')}"
