"""Leaves only those remedies in notes that apply to their exchange, and names its server in keys of settings."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.catalog.warning_codes import RemedyCondition, warning_codes
from dragoman.config.effective import key_as_toml
from dragoman.console.exchange.views import ExchangeNote, Lane, LaneBlock, Segment

_ANY_SERVER: Final = "upstreams.NAME"


class RemedyFacts(NamedTuple):
    """What decides which remedies apply to an exchange."""

    conditions: frozenset[RemedyCondition]
    """Those that the exchange meets."""
    upstream: str = ""
    """Its upstream server; empty: it has none."""


def fit_lanes(lanes: Iterable[Lane], facts: RemedyFacts) -> tuple[Lane, ...]:
    """Returns the lanes with the remedies that apply.

    Args:
        lanes: The lanes.
        facts: The exchange.
    """
    return tuple(replace(lane, blocks=tuple(_fit_block(block, facts) for block in lane.blocks)) for lane in lanes)


def fit_notes(notes: Iterable[ExchangeNote], facts: RemedyFacts) -> tuple[ExchangeNote, ...]:
    """Returns the notes with the remedies that apply.

    Args:
        notes: The notes.
        facts: The exchange.
    """
    return tuple(_fit_note(note, facts) for note in notes)


def _fit_block(block: LaneBlock, facts: RemedyFacts) -> LaneBlock:
    if not any(segment.notes for segment in block.segments):
        return block
    return replace(block, segments=tuple(_fit_segment(segment, facts) for segment in block.segments))


def _fit_segment(segment: Segment, facts: RemedyFacts) -> Segment:
    return replace(segment, notes=fit_notes(segment.notes, facts)) if segment.notes else segment


def _fit_note(note: ExchangeNote, facts: RemedyFacts) -> ExchangeNote:
    known = warning_codes().get(note.code)
    if known is None:
        return note
    remedies = [(each.text, each.setting) for each in known.remedies if each.when in facts.conditions]
    remedies.append((known.remedy, known.setting))
    server = key_as_toml(f"upstreams.{facts.upstream}.url").removesuffix(".url") if facts.upstream else _ANY_SERVER
    keys = [key for _, key in remedies if key and (facts.upstream or not key.startswith(_ANY_SERVER))]
    return replace(
        note,
        meaning=note.meaning.replace(_ANY_SERVER, server),
        remedy=" ".join(text for text, _ in remedies if text),
        settings=tuple(dict.fromkeys(key.replace(_ANY_SERVER, server) for key in keys)),
    )
