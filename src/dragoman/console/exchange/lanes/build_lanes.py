"""Builds the lanes of an exchange from the files of its capture.

It takes time in proportion to the capture, so it is called in a thread.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dragoman.console.exchange.lanes.links import Links
from dragoman.console.exchange.lanes.model_lane import Reads, advice_notes, model_lane
from dragoman.console.exchange.lanes.model_output import model_outputs
from dragoman.console.exchange.lanes.notes import distinct, error_note, warned_note
from dragoman.console.exchange.lanes.reply_lane import read_reply, reply_lane
from dragoman.console.exchange.lanes.request_diff import request_blocks
from dragoman.console.exchange.lanes.request_parts import ParsedRequest, parse_request
from dragoman.console.exchange.lanes.sent_lane import sent_calls, sent_lane
from dragoman.console.exchange.lanes.traced_events import TracedEvents, Warned
from dragoman.console.exchange.views import ExchangeNote, Lane, LaneBlock, SentCall, lane, number, segments
from dragoman.core.errors import DragomanError
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.replay import Replay

log = logging.getLogger("dragoman.console")
_BODY: Final = "body"


class ExchangeLanes(msgspec.Struct, frozen=True):
    """The lanes of an exchange, and what was noted about it."""

    lanes: tuple[Lane, ...]
    notes: tuple[ExchangeNote, ...]
    cache_note: str
    sent_calls: tuple[SentCall, ...]


def build_lanes(capture: LoadedCapture, previous: bytes | None = None, reads: Reads | None = None) -> ExchangeLanes:
    """Returns the four lanes of an exchange.

    Args:
        capture: The exchange.
        previous: The body of the previous request of the conversation; None: it is not known.
        reads: How the texts were read; None: a replay finds out.

    Raises:
        ConfigError: A file of the capture is damaged.
    """
    body = capture.files.get(_BODY, b"")
    client = parse_request(body) if body else None
    events = TracedEvents(capture.lines("events.jsonl"))
    reply = read_reply(capture)
    calls = sent_calls(capture, events)
    request, cache_note = _client_lane(capture, body, client, parse_request(previous) if previous else None)
    outputs = list(model_outputs(capture))
    known = read_settings(capture) if reads is None else reads
    links = Links(reply, events)
    model = model_lane(outputs, capture, known, links)
    return ExchangeLanes(
        lanes=(request, sent_lane(capture, calls, client), model, reply_lane(reply, events)),
        notes=tuple(distinct((*_notes(capture, events), *advice_notes(model)))),
        cache_note=cache_note,
        sent_calls=tuple(calls),
    )


def read_settings(capture: LoadedCapture) -> Reads:
    """Returns how the texts of models were read, which a replay finds out; nothing if it cannot be replayed.

    Runs an event loop, so the caller must be in a thread without one.
    """
    replay = Replay(capture)
    if not any(capture.output_count(number) for number in range(1, capture.backend_call_count + 1)):
        return replay.read_of
    try:
        asyncio.run(replay.find_reads())
    except (DragomanError, ImportError, ValueError, TypeError, KeyError) as error:
        log.debug("%s cannot be replayed: %s", capture.name, type(error).__name__)
    return replay.read_of


def _client_lane(
    capture: LoadedCapture, body: bytes, client: ParsedRequest | None, previous: ParsedRequest | None
) -> tuple[Lane, str]:
    """Returns the lane of the client's request, and what broke the prompt cache."""
    line = capture.json("request.json")
    head = "\n".join(f"{name}: {value}" for name, value in line.get("headers", {}).items())
    title = f"{line.get('method', '')} {line.get('path', '')}"
    blocks = [LaneBlock(title=title, segments=segments(head, "plain"))]
    if client is None:
        parts = segments(body.decode("utf-8", "replace"), "plain")
        return lane(
            "client", "what the client sent", f"{len(body):,} bytes", [*blocks, LaneBlock(title=_BODY, segments=parts)]
        ), ""
    compared = request_blocks(client, previous)
    messages = sum(part.kind == "message" for part in client.all)
    counts = f"{number(messages, 'message')}, {number(len(client.tools), 'tool')}, {number(len(body), 'byte')}"
    changed = _changes(compared.blocks) if previous else ""
    summary = f"{counts}; {changed}" if changed else counts
    return lane("client", "what the client sent", summary, [*compared.blocks, *blocks]), compared.cache_note


def _changes(blocks: Sequence[LaneBlock]) -> str:
    counts: Mapping[str, int] = {
        change: sum(block.change == change for block in blocks) for change in ("added", "changed", "removed")
    }
    return ", ".join(f"{count} {change}" for change, count in counts.items() if count) or "nothing changed"


def _notes(capture: LoadedCapture, events: TracedEvents) -> Sequence[ExchangeNote]:
    """Returns the notes about the exchange as a whole."""
    summary = capture.json("summary.json")
    notes = [warned_note(warned) for warned in events.warnings]
    if not events.warnings:
        notes += [warned_note(Warned(each["code"], each.get("message", ""))) for each in summary.get("warnings", ())]
    if events.error:
        notes.append(error_note(events.error))
    elif error := summary.get("log", {}).get("error"):
        notes.append(ExchangeNote(code="error", message=str(error)))
    if summary.get("is_cut"):
        notes.append(ExchangeNote(code="left_out", message="the exchange was too large to be captured completely"))
    return distinct(notes)
