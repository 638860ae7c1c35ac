"""Anthropic's `context_management` edits that only remove content, applied for servers that do not support them.

    {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
               {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30000},
                "keep": {"type": "tool_uses", "value": 3}, "clear_at_least": {"type": "input_tokens", "value": 5000},
                "exclude_tools": ["web_search"], "clear_tool_inputs": false}]}

`clear_thinking_20251015` removes the reasoning of all turns but the last `keep` (1) that have some; a turn ends at a
user message without tool results. `clear_tool_uses_20250919` replaces all tool results but the last `keep` (3) with a
short text when the prompt exceeds its `trigger` (100,000 tokens), unless that removes less than `clear_at_least`.
Calls keep their results, and with `clear_tool_inputs` lose their arguments.

The client sends the whole conversation each time, and nothing is stored here. To keep the prompt cache valid between
two clearings, the conversation is replayed as it grew: at each response the prompt is what earlier clearings left, and
the next clearing happens when that exceeds the trigger again. So the same beginning of a conversation is always edited
in the same way.

Source: https://platform.claude.com/docs/en/build-with-claude/context-editing and the types in the anthropic package
(2026-11). The page does not state the text of the placeholder or whether excluded tools count for `keep`; here they do.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.backend import Backend
from dragoman.core.events import AnyEvent, Detail, Finish, Notice
from dragoman.core.messages import JsonText, Message, Part, Reasoning, Request, Text, ToolCall, ToolResult
from dragoman.core.stage import EventStage
from dragoman.core.token_estimate import MESSAGE_TOKENS, TokenEstimator
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.translation import notices_by_name

DIALECT: Final = "anthropic_messages"
MEMBER: Final = "context_management"
CLEARED: Final = "[The result of this tool call was removed to shorten the conversation.]"
THINKING: Final = "clear_thinking_20251015"
TOOL_USES: Final = "clear_tool_uses_20250919"
_TRIGGER_TOKENS: Final = 100_000
_KEPT_USES: Final = 3
_KEPT_TURNS: Final = 1
_NO_INPUT: Final = "{}"


class EditedRequest(NamedTuple):
    """A request after its context edits were applied."""

    request: Request
    """The request without its `context_management` field."""
    applied: JsonText = ""
    """Value of `context_management` in the response; empty if the request contains no edits."""
    warnings: tuple[Notice, ...] = ()
    """Notices of unknown edit types."""
    cleared_tokens: int = 0
    """Tokens removed, estimated."""


class EditReport(EventStage):
    """Adds the report of the edits before Finish."""

    handles = frozenset((Finish,))

    def __init__(self, applied: str) -> None:
        self._applied = applied

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events, with the report."""
        if not (events and isinstance(events[-1], Finish)):
            return events
        return [*events[:-1], Detail(MEMBER, self._applied, DIALECT), events[-1]]


def apply_edits_for(backend: Backend, request: Request, vocabulary: TokenEstimator) -> EditedRequest:
    """Returns the request as this backend must receive it.

    Raises:
        RequestError: A field of an edit has an invalid value.
    """
    if not _has_edits(request) or backend.edits_context(request):
        return EditedRequest(request)
    return apply_edits(request, vocabulary)


def apply_edits(request: Request, vocabulary: TokenEstimator) -> EditedRequest:
    """Applies the edits of the request in order.

    Args:
        request: Its messages are in order: each call is followed by its result.
        vocabulary: Estimates the tokens for triggers and for the report.

    Raises:
        RequestError: A field of an edit has an invalid value.
    """
    if not _has_edits(request):
        return EditedRequest(request)
    applied: list[dict[str, object]] = []
    unknown: dict[str, str] = {}
    messages: Sequence[Message] = request.messages
    for edit in Cursor(request.extra[MEMBER], f"$.{MEMBER}").fields().items("edits"):
        fields = edit.fields()
        match fields.require("type").string():
            case "clear_thinking_20251015":
                messages, cleared = _clear_thinking(messages, _read_kept_turns(fields), vocabulary)
            case "clear_tool_uses_20250919":
                messages, cleared = _ToolUsesEdit(fields, replace(request, messages=()), vocabulary).clear(messages)
            case type:
                unknown[f"{MEMBER}.{type}"], cleared = type, {}
        applied += [cleared] if cleared else []
    extra = {name: raw for name, raw in request.extra.items() if name != MEMBER}
    notices = notices_by_name("content_dropped", "context edit {} is not carried out here", unknown)
    tokens = sum(int(str(each["cleared_input_tokens"])) for each in applied)
    report = json.dumps({"applied_edits": applied})
    return EditedRequest(replace(request, messages=tuple(messages), extra=extra), report, tuple(notices), tokens)


def without_thinking_edits(request: Request) -> Request:
    """Returns the request without edits of reasoning, for a server that gets none of it."""
    if not _has_edits(request):
        return request
    management = json.loads(bytes(request.extra[MEMBER]))
    edits = management.get("edits") if isinstance(management, dict) else None
    if not isinstance(edits, list):
        return request
    others = [each for each in edits if not (isinstance(each, dict) and each.get("type") == THINKING)]
    extra = {name: raw for name, raw in request.extra.items() if name != MEMBER}
    if others:
        extra[MEMBER] = Raw(json.dumps(management | {"edits": others}).encode())
    return replace(request, extra=extra)


def _has_edits(request: Request) -> bool:
    return request.dialect == DIALECT and bytes(request.extra.get(MEMBER, b"null")) != b"null"


def _without_reasoning(messages: Sequence[Message], removed: set[int]) -> list[Message]:
    """Returns the messages with reasoning removed from those at the indices `removed`; empty messages are dropped."""
    left: list[Message] = []
    for n, message in enumerate(messages):
        parts = tuple(part for part in message.parts if n not in removed or not isinstance(part, Reasoning))
        if len(parts) == len(message.parts):
            left.append(message)
        elif parts:
            left.append(replace(message, parts=parts, verbatim_text=""))
    return left


def _read_kept_turns(fields: Fields) -> int | None:
    """Returns how many turns keep their reasoning; None: all."""
    keep = fields.pop("keep")
    if keep is None:
        return _KEPT_TURNS
    if keep.kind == "string":
        keep.one_of(("all",), "number of turns to keep")
        return None
    inner = keep.fields()
    kind = inner.require("type").one_of(("thinking_turns", "all"), "unit")
    return None if kind == "all" else inner.require("value").integer(minimum=1)


def _clear_thinking(
    messages: Sequence[Message], keep: int | None, vocabulary: TokenEstimator
) -> tuple[Sequence[Message], dict[str, object]]:
    if keep is None:
        return messages, {}
    turns: dict[int, list[int]] = {}
    """Indices of the messages with reasoning, per turn."""
    turn = 0
    for n, message in enumerate(messages):
        turn += message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts)
        if message.role == "assistant" and any(isinstance(part, Reasoning) for part in message.parts):
            turns.setdefault(turn, []).append(n)
    old_messages = {n for old in list(turns)[:-keep] for n in turns[old]}
    if not old_messages:
        return messages, {}
    removed = (part for n in old_messages for part in messages[n].parts if isinstance(part, Reasoning))
    tokens = sum(map(vocabulary.estimate_part, removed))
    cleared = {"type": THINKING, "cleared_thinking_turns": len(turns) - keep, "cleared_input_tokens": tokens}
    return _without_reasoning(messages, old_messages), cleared


class _ToolUsesEdit:
    """One `clear_tool_uses_20250919` edit."""

    def __init__(self, fields: Fields, bare: Request, vocabulary: TokenEstimator) -> None:
        """Reads the edit; `bare` is the request without its messages."""
        self._vocabulary = vocabulary
        trigger = _read_amount(fields, "trigger", "input_tokens", "tool_uses")
        self._unit, self._trigger = trigger or ("input_tokens", _TRIGGER_TOKENS)
        keep = _read_amount(fields, "keep", "tool_uses")
        self._keep = _KEPT_USES if keep is None else keep[1]
        least = _read_amount(fields, "clear_at_least", "input_tokens")
        self._least = least[1] if least else 0
        self._excluded = {item.string() for item in fields.items("exclude_tools")}
        inputs = fields.pop("clear_tool_inputs")
        is_list = inputs is not None and inputs.kind == "array"
        self._inputs_of = {item.string() for item in inputs.items()} if inputs and is_list else set()
        self._all_inputs = bool(inputs and not is_list and inputs.boolean())
        self._tokens = vocabulary.estimate_request(bare)
        """Tokens of the prompt so far, without what was cleared."""
        self._calls: dict[str, ToolCall] = {}
        self._uses: list[ToolResult] = []
        self._saved, self._counted = [0], [0]
        """Tokens and number of the clearable results among the first n uses, by n."""
        self._upto = 0
        """Number of leading uses that are cleared."""

    def clear(self, messages: Sequence[Message]) -> tuple[Sequence[Message], dict[str, object]]:
        """Returns the messages after all clearings, and the report."""
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
        """Clears results if the prompt that is about to be sent exceeds the trigger."""
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
            saved = max(0, tokens - self._vocabulary.estimate_part(_cleared(result)))
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
        return message if parts == message.parts else replace(message, parts=parts, verbatim_text="")

    def _part(self, part: Part, ids: set[str]) -> Part:
        if isinstance(part, ToolResult) and part.call_id in ids:
            return _cleared(part)
        if isinstance(part, ToolCall) and part.id in ids and self._loses_input(part):
            return replace(part, arguments=_NO_INPUT)
        return part


def _cleared(result: ToolResult) -> ToolResult:
    return replace(result, parts=(Text(CLEARED),))


def _read_amount(fields: Fields, name: str, *units: str) -> tuple[str, int] | None:
    """Reads a number with its unit, `{"type": "input_tokens", "value": 30000}`."""
    value = fields.pop(name)
    if value is None:
        return None
    inner = value.fields()
    return inner.require("type").one_of(units, "unit"), inner.require("value").integer(minimum=0)
