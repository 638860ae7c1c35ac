"""What models wrote of late, word for word, so that they are shown it so.

    written    ```json\\n{"name": "Read", "arguments": {"path": "a"}}\\n```
    sent back  {"type": "tool_use", "name": "Read", "input": {"path":"a"}}

Clients send calls back as their API has them, arguments written anew. Shown to the model in the form that its format
has for calls, that is another text than it wrote, and its prompt cache ends there: at each call for models whose state
cannot be wound back, such as those with a sliding window. Of forty texts of Qwen2.5-Coder 1.5B with a call none is in
that form (tests/data/backends/forty); larger models differ by the blanks that clients leave out of arguments.

A call is found by its id, whatever punctuation a client has taken from it, and must be the same call but for white
space and order. What is forgotten is shown in the format's own form. What was used last goes last: a conversation uses
all of its calls in each request, so that none of them goes while it is used.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import JsonText, Message, Part, Request, Text, ToolCall

REPLIES: Final = 4000
CHARS: Final = 16_000_000
"""Of what is kept, texts and arguments: as much as a hundred long conversations."""


class _Kept(NamedTuple):
    raw: str
    """The whole reply; empty where something in it is not to be shown again, such as thoughts."""
    text: str
    """Its words, without calls."""
    calls: tuple[ToolCall, ...]

    @property
    def chars(self) -> int:
        return len(self.raw) + len(self.text) + sum(len(call.arguments) for call in self.calls)


class OwnWords:
    """Replies with calls, by the id of their first call."""

    def __init__(self, replies: int = REPLIES, chars: int = CHARS) -> None:
        self._limits = (replies, chars)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.chars = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, raw: str, text: str, calls: tuple[ToolCall, ...]) -> None:
        """Remember a reply with calls."""
        made, key = _Kept(raw, text, calls), _key(calls[0].id)
        self._forget(key)
        self._kept[key] = made
        self.chars += made.chars
        replies, chars = self._limits
        while len(self._kept) > replies or self.chars > chars:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        if gone := self._kept.pop(key, None):
            self.chars -= gone.chars

    def restored(self, request: Request) -> Request:
        """The request with what is kept of the model's turns in them."""
        messages = tuple(self._message(m) if m.role == "assistant" else m for m in request.messages)
        return replace(request, messages=messages)

    def learn(self, request: Request) -> None:
        """Remember the model's turns of a request that `restored` gave."""
        for message in request.messages:
            calls = tuple(part for part in message.parts if isinstance(part, ToolCall))
            if message.role == "assistant" and calls:
                text = "".join(part.text for part in message.parts if isinstance(part, Text))
                self.keep(message.written, text, calls)

    def _message(self, message: Message) -> Message:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        key = _key(calls[0].id) if calls else ""
        kept = self._kept.get(key)
        if kept is None or not _same_calls(calls, kept.calls):
            return message
        with suppress(KeyError):  # large requests are written in a thread: forgotten meanwhile
            self._kept.move_to_end(key)
        written = iter(kept.calls)
        parts = (replace(p, arguments=next(written).arguments) if isinstance(p, ToolCall) else p for p in message.parts)
        return replace(message, parts=tuple(parts), written=kept.raw if _same_words(message.parts, kept.text) else "")


class Listener:
    """Hears one reply, and has it kept where the model came to its end with calls."""

    def __init__(self, own_words: OwnWords) -> None:
        self._own_words = own_words
        self._raw: list[str] = []
        self._text: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._late_id = ""
        """Of the first call, by which a client that got it whole knows it."""
        self._shown_again = True
        self._whole = True

    def wrote(self, text: str) -> None:
        """More of the model's own text."""
        self._raw.append(text)

    def broken_off(self) -> None:
        """The model was stopped, or more was made of its text than it says: nothing of it is kept."""
        self._whole = False

    def gave(self, events: Iterable[AnyEvent]) -> None:
        """What was made of it."""
        for event in events:
            match event:
                case TextDelta(text):
                    self._text.append(text)
                case ToolCallStart(_, id, name):
                    self._calls.append((id, name, []))
                case ToolCallDelta(_, text) if self._calls:
                    self._calls[-1][2].append(text)
                case ToolCallEnd(id=id) if id and len(self._calls) == 1:
                    self._late_id = id
                case ToolCallIncomplete() | Notice(code="duplicate_call_dropped"):
                    self.broken_off()
                case ReasoningDelta():
                    self._shown_again = False
                case Finish(reason):
                    self._finish(reason in ("stop", "tool_calls"))
                case _:
                    pass

    def _finish(self, good: bool) -> None:
        if good and self._whole and self._calls:
            calls = tuple(ToolCall(id, name, "".join(pieces)) for id, name, pieces in self._calls)
            raw, text = "".join(self._raw) if self._shown_again else "", "".join(self._text)
            self._own_words.keep(raw, text, calls)
            if self._late_id:
                self._own_words.keep(raw, text, (replace(calls[0], id=self._late_id), *calls[1:]))


def _key(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", id)


def _same_calls(sent: Sequence[ToolCall], kept: Sequence[ToolCall]) -> bool:
    return len(sent) == len(kept) and all(
        one.name == other.name and _same_json(one.arguments, other.arguments)
        for one, other in zip(sent, kept, strict=True)
    )


def _same_json(one: JsonText, other: JsonText) -> bool:
    try:
        return one == other or bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _same_words(parts: Iterable[Part], text: str) -> bool:
    """Whether these say just that, whatever the white space; thoughts are shown by other rules."""
    said = [part for part in parts if not isinstance(part, ToolCall)]
    if any(not isinstance(part, Text) for part in said):
        return False
    return "".join(part.text for part in said if isinstance(part, Text)).split() == text.split()
