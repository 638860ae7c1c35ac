"""The captured exchanges of one session, turn by turn.

A turn belongs to the session if the client sent the same id of the conversation, from the same part of the agent;
without an id, if one conversation continues the other. Subagents of a session have the same id, and tasks of their own:
they belong together if their first message is the same, too.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from dragoman.catalog import tokenizers
from dragoman.console.context_use.captured import CapturedRequest, read_request
from dragoman.console.context_use.counts import group_parts, part_ends, total_count
from dragoman.console.context_use.parts import RequestPart, request_parts
from dragoman.console.context_use.views import ContextGroup, ContextTurn, ReportedUsage
from dragoman.core.errors import ConfigError
from dragoman.core.messages import SYSTEM_ROLES, Message, Request, Text
from dragoman.identify.client import identify_client
from dragoman.server.capture.files import Files
from dragoman.server.capture.load import LoadedCapture

MAX_TURNS: Final = 200
MAX_READ: Final = 200
"""Maximum number of captures that are read for one page, the newest first."""
MAX_READ_S: Final = 1.0
"""Maximum time for reading them; what has been read is remembered for the next time."""

TurnsBy: TypeAlias = Literal["session", "conversation", ""]


class Captures(Protocol):
    """Where captures are."""

    def names(self) -> list[str]:
        """Returns the names of all captures, the oldest first; each ends in the id of its exchange."""

    def read(self, name: str) -> Files | None:
        """Returns the files of a capture; None: no capture has this name."""


class NoCaptures:
    """No captures, as while none are stored."""

    def names(self) -> list[str]:
        """Returns no names."""
        return []

    def read(self, name: str) -> Files | None:
        """Always None: there are no captures."""


NO_CAPTURES: Final = NoCaptures()


class TurnFacts(NamedTuple):
    """What is remembered of a captured exchange: numbers and hashes, no text of it."""

    id: str
    began_s: float
    session: str
    role: str
    """Which part of the agent asked."""
    first_message: int
    """Hash of the first message that is not an instruction."""
    messages: int
    tokens: int
    groups: list[ContextGroup]
    usage: ReportedUsage
    marks: list[tuple[int, int]]
    """Hash of each part in the order of the prompt, and the tokens to its end."""
    conversation: tuple[int, ...]
    """Hashes of the parts of messages that are not instructions."""


class Session(NamedTuple):
    """The turns of a session."""

    id: str
    turns_by: TurnsBy
    turns: list[ContextTurn]
    has_all: bool


def exchange_id(name: str) -> str:
    """Returns the id of the exchange in the name of its capture."""
    return name.rpartition("-")[2]


def turn_facts(id: str, captured: CapturedRequest, parts: Sequence[RequestPart]) -> TurnFacts:
    """Returns what is remembered of an exchange.

    Args:
        id: The id of the exchange.
        captured: The exchange.
        parts: The parts of its request as it was sent.
    """
    total = total_count(parts, captured)
    ends = part_ends(parts, total)
    client = identify_client(captured.headers, captured.request)
    return TurnFacts(
        id=id,
        began_s=captured.began_s,
        session=client.session,
        role=client.role,
        first_message=_first_message(captured.sent),
        messages=len(captured.sent.messages),
        tokens=total.tokens,
        groups=group_parts(parts, ends),
        usage=captured.usage,
        marks=[(part.mark, end) for part, end in zip(parts, ends, strict=True) if _is_kept(part)],
        conversation=tuple(part.mark for part in parts if part.message is not None and part.kind != "system"),
    )


def _is_kept(part: RequestPart) -> bool:
    """Returns whether a part has a place of its own in the prompt."""
    return part.kind not in ("frame", "schema")


def _first_message(request: Request) -> int:
    first = next((message for message in request.messages if message.role not in SYSTEM_ROLES), None)
    return 0 if first is None else hash(_texts(first))


def _texts(message: Message) -> tuple[str, ...]:
    return tuple(part.text for part in message.parts if isinstance(part, Text))


class SessionTurns:
    """Finds the turns of sessions. Safe for use by several threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Args:
        now_s: monotonic clock, in seconds.
        """
        self._now_s = now_s
        self._known: dict[str, TurnFacts | None] = {}
        """By the name of the capture; None: it is not a request, or damaged."""
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forgets everything, as when captures are switched off."""
        with self._lock:
            self._known.clear()

    def find(self, captures: Captures, current: TurnFacts, parts: Sequence[RequestPart]) -> Session:
        """Returns the turns of the session of an exchange.

        Args:
            captures: All captures.
            current: The exchange.
            parts: Its parts in the order of the prompt, for the names of those that changed.
        """
        names = captures.names()
        with self._lock:
            self._known = {name: self._known[name] for name in names if name in self._known}
            self._known |= {name: current for name in names if exchange_id(name) == current.id}
            has_all = self._read(captures, names)
            others = [facts for facts in self._known.values() if facts is not None]
        same = [each for each in others if each.id != current.id and _belongs(current, each)]
        if not current.session:  # of the same request, sent several times, the last one
            same = list({each.conversation: each for each in sorted(same, key=lambda each: each.began_s)}.values())
        ordered = sorted([*same, current], key=lambda each: (each.began_s, each.id))
        place = next(n for n, each in enumerate(ordered) if each is current)
        begin = max(0, min(len(ordered) - MAX_TURNS, place - MAX_TURNS // 2))
        turns = _turns(ordered, current, parts)[begin : begin + MAX_TURNS]
        by: TurnsBy = "" if not same else "session" if current.session else "conversation"
        return Session(current.session, by, turns, has_all and len(turns) == len(ordered))

    def _read(self, captures: Captures, names: Sequence[str]) -> bool:
        """Reads captures that are not known, the newest first; returns whether it has read all."""
        end_s = self._now_s() + MAX_READ_S
        new = [name for name in reversed(names) if name not in self._known]
        for name in new[:MAX_READ]:
            if self._now_s() > end_s:
                return False
            self._known[name] = _read_facts(captures, name)
        return len(new) <= MAX_READ


def _read_facts(captures: Captures, name: str) -> TurnFacts | None:
    try:
        files = captures.read(name)
        captured = read_request(LoadedCapture(name, files)) if files else None
    except ConfigError:
        return None
    if captured is None:
        return None
    parts = request_parts(captured.sent, tokenizers.find(captured.sent.model))
    return turn_facts(exchange_id(name), captured, parts)


def _belongs(current: TurnFacts, other: TurnFacts) -> bool:
    if (current.session, current.role) != (other.session, other.role):
        return False
    if not current.session:
        shorter, longer = sorted((current.conversation, other.conversation), key=len)
        return len(shorter) < len(longer) and longer[: len(shorter)] == shorter
    return current.role in ("", "main") or current.first_message == other.first_message


def _turns(ordered: Sequence[TurnFacts], current: TurnFacts, parts: Sequence[RequestPart]) -> list[ContextTurn]:
    names = {part.mark: part.name for part in parts}
    first = ordered[0]
    pairs: Iterable[tuple[TurnFacts | None, TurnFacts]] = [(None, first), *pairwise(ordered)]
    turns = []
    for number, (before, turn) in enumerate(pairs, 1):
        changed, at = ("", None) if before is None else _changed(before, turn, names)
        turns.append(
            ContextTurn(
                id=turn.id,
                number=number,
                began_s=turn.began_s,
                is_current=turn is current,
                tokens=turn.tokens,
                growth=0 if before is None else turn.tokens - before.tokens,
                messages=turn.messages,
                messages_added=turn.messages - (before.messages if before else 0),
                usage=turn.usage,
                groups=turn.groups,
                changed=changed,
                changed_at_tokens=at,
            )
        )
    return turns


def _changed(before: TurnFacts, turn: TurnFacts, names: dict[int, str]) -> tuple[str, int | None]:
    """Returns the name of the first part that is not as before, and the tokens before it; "" if all are."""
    at = 0
    for (old, _), (new, end) in zip(before.marks, turn.marks, strict=False):
        if old != new:
            return names.get(new, "a part of an earlier turn"), at
        at = end
    return ("", None) if len(before.marks) <= len(turn.marks) else ("the end of the conversation", at)
