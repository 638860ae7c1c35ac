"""Anthropic's `context_management` edits that only remove, carried out for a server that does not know them.

    {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
               {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30000},
                "keep": {"type": "tool_uses", "value": 3}, "clear_at_least": {"type": "input_tokens", "value": 5000},
                "exclude_tools": ["web_search"], "clear_tool_inputs": false}]}

`clear_thinking_20251015` removes the reasoning of all turns but the last `keep` (1) that have some; a turn ends at a
message of the user without tool results. `clear_tool_uses_20250919` replaces all tool results but the last `keep` (3)
by a short text, once the prompt exceeds its `trigger` (100,000 tokens), unless that removes less than `clear_at_least`;
calls keep their results, and with `clear_tool_inputs` lose their arguments.

The client sends the whole conversation each time, and nothing is stored here. So that a prompt cache holds between two
clearings, the conversation is gone through as it grew: at each answer the prompt is what the clearings before it left,
and the next clearing comes where that exceeds the trigger again. The same beginning of a conversation is so always
edited in the same way.

Source: https://platform.claude.com/docs/en/build-with-claude/context-editing and the types in the anthropic package
(2026-11). The page does not state the text of the placeholder or whether excluded tools count for `keep`; here they do.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, Detail, Finish, Notice
from dragoman.core.messages import JsonText, Message, Part, Reasoning, Request, Text, ToolCall, ToolResult
from dragoman.core.token_estimate import MESSAGE_TOKENS, TokenEstimator
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.translation import warned

DIALECT: Final = "anthropic_messages"
MEMBER: Final = "context_management"
CLEARED: Final = "[The result of this tool call was removed to shorten the conversation.]"
THINKING: Final = "clear_thinking_20251015"
TOOL_USES: Final = "clear_tool_uses_20250919"
_TRIGGER_TOKENS: Final = 100_000
_KEPT_USES: Final = 3
_KEPT_TURNS: Final = 1
_NO_INPUT: Final = "{}"


@runtime_checkable
class EditsContext(Protocol):
    """A backend with a server that gets requests in their own API, and so carries such edits out itself."""

    def edits_context(self, request: Request) -> bool:
        """Whether it does so for this request."""


class Edited(NamedTuple):
    """A request whose edits were carried out."""

    request: Request
    """Without the member that asks for them."""
    applied: JsonText = ""
    """What the answer's `context_management` is; empty where the request asks for no edits."""
    warnings: tuple[Notice, ...] = ()
    """The types of edits that are not known here."""
    cleared_tokens: int = 0
    """Estimated."""

    def before(self, event: AnyEvent) -> tuple[Detail, ...]:
        """Returns the report of the edits before the answer's Finish, nothing before any other event."""
        return (Detail(MEMBER, self.applied, DIALECT),) if self.applied and isinstance(event, Finish) else ()


def edited_for(backend: object, request: Request, vocabulary: TokenEstimator) -> Edited:
    """Returns the request as this backend is to get it.

    Raises: RequestError: an edit has a member that is not what it should be.
    """
    if not _asks(request) or (isinstance(backend, EditsContext) and backend.edits_context(request)):
        return Edited(request)
    return edited(request, vocabulary)


def edited(request: Request, vocabulary: TokenEstimator) -> Edited:
    """Returns the request with its edits carried out in their order, and what they removed.

    Args:
        request: Its messages are in order: each call has its result after it.
        vocabulary: Estimates the tokens that triggers and the report are about.

    Raises: RequestError: an edit has a member that is not what it should be.
    """
    if not _asks(request):
        return Edited(request)
    applied: list[dict[str, object]] = []
    unknown: dict[str, str] = {}
    messages: Sequence[Message] = request.messages
    for edit in Cursor(request.extra[MEMBER], f"$.{MEMBER}").fields().items("edits"):
        fields = edit.fields()
        match fields.need("type").string():
            case "clear_thinking_20251015":
                messages, cleared = _clear_thinking(messages, _kept_turns(fields), vocabulary)
            case "clear_tool_uses_20250919":
                messages, cleared = _ToolUses(fields, replace(request, messages=()), vocabulary).clear(messages)
            case type:
                unknown[f"{MEMBER}.{type}"], cleared = type, {}
        applied += [cleared] if cleared else []
    extra = {name: raw for name, raw in request.extra.items() if name != MEMBER}
    told = warned("content_dropped", "context edit {} is not carried out here", unknown)
    tokens = sum(int(str(each["cleared_input_tokens"])) for each in applied)
    report = json.dumps({"applied_edits": applied})
    return Edited(replace(request, messages=tuple(messages), extra=extra), report, tuple(told), tokens)


def _asks(request: Request) -> bool:
    return request.dialect == DIALECT and bytes(request.extra.get(MEMBER, b"null")) != b"null"


def _without(messages: Sequence[Message], gone: set[int]) -> list[Message]:
    """The messages, those of these numbers without reasoning; a message that has nothing else is left out."""
    left: list[Message] = []
    for n, message in enumerate(messages):
        parts = tuple(part for part in message.parts if n not in gone or not isinstance(part, Reasoning))
        if len(parts) == len(message.parts):
            left.append(message)
        elif parts:
            left.append(replace(message, parts=parts, written=""))
    return left


def _kept_turns(fields: Fields) -> int | None:
    """How many turns keep their reasoning; None: all."""
    keep = fields.take("keep")
    if keep is None:
        return _KEPT_TURNS
    if keep.kind == "string":
        keep.choice(("all",), "number of turns to keep")
        return None
    inner = keep.fields()
    kind = inner.need("type").choice(("thinking_turns", "all"), "unit")
    return None if kind == "all" else inner.need("value").integer(least=1)


def _clear_thinking(
    messages: Sequence[Message], keep: int | None, vocabulary: TokenEstimator
) -> tuple[Sequence[Message], dict[str, object]]:
    if keep is None:
        return messages, {}
    turns: dict[int, list[int]] = {}
    """Of each turn that has reasoning, the messages with it."""
    turn = 0
    for n, message in enumerate(messages):
        turn += message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts)
        if message.role == "assistant" and any(isinstance(part, Reasoning) for part in message.parts):
            turns.setdefault(turn, []).append(n)
    gone = {n for old in list(turns)[:-keep] for n in turns[old]}
    if not gone:
        return messages, {}
    removed = (part for n in gone for part in messages[n].parts if isinstance(part, Reasoning))
    tokens = sum(map(vocabulary.estimate_part, removed))
    cleared = {"type": THINKING, "cleared_thinking_turns": len(turns) - keep, "cleared_input_tokens": tokens}
    return _without(messages, gone), cleared


class _ToolUses:
    """One edit of the other type."""

    def __init__(self, fields: Fields, bare: Request, vocabulary: TokenEstimator) -> None:
        """`bare`: the request without its messages."""
        self._vocabulary = vocabulary
        trigger = _amount(fields, "trigger", "input_tokens", "tool_uses")
        self._unit, self._trigger = trigger or ("input_tokens", _TRIGGER_TOKENS)
        keep = _amount(fields, "keep", "tool_uses")
        self._keep = _KEPT_USES if keep is None else keep[1]
        least = _amount(fields, "clear_at_least", "input_tokens")
        self._least = least[1] if least else 0
        self._excluded = {item.string() for item in fields.items("exclude_tools")}
        inputs = fields.take("clear_tool_inputs")
        is_list = inputs is not None and inputs.kind == "array"
        self._inputs_of = {item.string() for item in inputs.items()} if inputs and is_list else set()
        self._all_inputs = bool(inputs and not is_list and inputs.boolean())
        self._tokens = vocabulary.estimate_request(bare)
        """Of the prompt so far, without what was cleared."""
        self._calls: dict[str, ToolCall] = {}
        self._uses: list[ToolResult] = []
        self._saved, self._counted = [0], [0]
        """Tokens and number of what can be cleared of the first so many uses."""
        self._upto = 0
        """How many of the first uses have been cleared."""

    def clear(self, messages: Sequence[Message]) -> tuple[Sequence[Message], dict[str, object]]:
        """Returns the conversation after all clearings, and the report."""
        before = ""
        for message in messages:
            if message.role == "assistant" and before != "assistant":
                self._clear()
            self._add(message)
            before = message.role
        if before != "assistant":
            self._clear()
        ids = {use.call_id for use in self._uses[: self._upto] if self._is_clearable(use)}
        if not ids:
            return messages, {}
        tokens = self._saved[self._upto]
        cleared = {"type": TOOL_USES, "cleared_tool_uses": len(ids), "cleared_input_tokens": tokens}
        return [self._left(message, ids) for message in messages], cleared

    def _clear(self) -> None:
        """Clears what can be, where the prompt that is about to be sent exceeds the trigger."""
        upto, at = len(self._uses) - self._keep, self._upto
        if upto <= at or self._counted[upto] == self._counted[at]:
            return
        size = self._tokens if self._unit == "input_tokens" else len(self._uses) - self._counted[at]
        saved = self._saved[upto] - self._saved[at]
        if size > self._trigger and saved >= self._least:
            self._upto, self._tokens = upto, self._tokens - saved

    def _add(self, message: Message) -> None:
        self._tokens += MESSAGE_TOKENS
        for part in message.parts:
            tokens = self._vocabulary.estimate_part(part)
            self._tokens += tokens
            if isinstance(part, ToolCall):
                self._calls[part.id] = part
            elif isinstance(part, ToolResult):
                self._use(part, tokens)

    def _use(self, result: ToolResult, tokens: int) -> None:
        saved, call = 0, self._calls.get(result.call_id)
        if is_clearable := self._is_clearable(result):
            saved = max(0, tokens - self._vocabulary.estimate_part(_emptied(result)))
            if call is not None and self._loses_input(call):
                saved += max(0, self._vocabulary.estimate(call.arguments) - self._vocabulary.estimate(_NO_INPUT))
        self._uses.append(result)
        self._saved.append(self._saved[-1] + saved)
        self._counted.append(self._counted[-1] + is_clearable)

    def _is_clearable(self, result: ToolResult) -> bool:
        call = self._calls.get(result.call_id)
        return call is not None and call.name not in self._excluded

    def _loses_input(self, call: ToolCall) -> bool:
        return self._all_inputs or call.name in self._inputs_of

    def _left(self, message: Message, ids: set[str]) -> Message:
        parts = tuple(self._part(part, ids) for part in message.parts)
        return message if parts == message.parts else replace(message, parts=parts, written="")

    def _part(self, part: Part, ids: set[str]) -> Part:
        if isinstance(part, ToolResult) and part.call_id in ids:
            return _emptied(part)
        if isinstance(part, ToolCall) and part.id in ids and self._loses_input(part):
            return replace(part, arguments=_NO_INPUT)
        return part


def _emptied(result: ToolResult) -> ToolResult:
    return replace(result, parts=(Text(CLEARED),))


def _amount(fields: Fields, name: str, *units: str) -> tuple[str, int] | None:
    """A number with its unit, `{"type": "input_tokens", "value": 30000}`."""
    found = fields.take(name)
    if found is None:
        return None
    inner = found.fields()
    return inner.need("type").choice(units, "unit"), inner.need("value").integer(least=0)
