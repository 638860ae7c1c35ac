"""The lane of what was asked of models: each request, and why it was sent."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.console.exchange.lanes.notes import error_note
from dragoman.console.exchange.lanes.request_diff import request_blocks
from dragoman.console.exchange.lanes.request_parts import BodyPart, ParsedRequest, parse_request
from dragoman.console.exchange.lanes.traced_events import TracedEvents
from dragoman.console.exchange.views import ExchangeNote, Lane, LaneBlock, Reason, Segment, SentCall, lane, segments
from dragoman.server.capture.load import LoadedCapture

_KEY_CHARS: Final = 300
"""Characters of a message by which it is found in another request."""
_MIN_CHARS: Final = 3
"""Shorter descriptions of tools are not searched: they are everywhere."""
_WORD_CHARS: Final = 12
"""Maximum length of a text that must not be a part of a word."""
_MAX_TRIES: Final = 100
"""Maximum number of words in which a short text is found, before it is given up."""
_AHEAD: Final = 64
"""Number of messages in which the text of a changed message is searched."""
_WHY: Final = {
    "first": "the first request",
    "retry": "sent again",
    "failover": "the backend before it failed",
    "reask": "the model is shown its error",
    "tools": "with the results of tools that the gateway ran",
    "continued": "continues the text of a server that failed",
}


class _Found(NamedTuple):
    start: int
    end: int
    link: str
    kind: str


def sent_calls(capture: LoadedCapture, events: TracedEvents) -> list[SentCall]:
    """Returns the calls of backends, each with the reason for it.

    Args:
        capture: The exchange.
        events: The events for the client.
    """
    calls: list[SentCall] = []
    codes = {warned.code for warned in events.warnings}
    for number in range(1, capture.backend_call_count + 1):
        about = capture.json(f"{number}/backend.json")
        mode = about.get("model_mode") or {}
        is_read_here = mode.get("tool_mode") in ("parse", "prompt") or about.get("kind") == "embedded"
        tool_mode = mode.get("tool_mode", "") or ("prompt" if about.get("kind") == "embedded" else "")
        calls.append(
            SentCall(
                number=number,
                backend=about.get("backend", ""),
                model=about.get("model", ""),
                mode=tool_mode if about.get("is_read", True) else "passthrough",
                format=str(mode.get("call_format") or about.get("format") or "") if is_read_here else "",
                why=_why(capture, number, calls, codes),
                error=_error_text(capture, number),
            )
        )
    return calls


def _why(capture: LoadedCapture, number: int, before: Sequence[SentCall], codes: set[str]) -> Reason:
    if number == 1:
        return "first"
    about = capture.json(f"{number}/backend.json")
    failed = before[-1]
    if failed.error:
        if "continued" in codes and capture.files.get(f"{number - 1}/events.jsonl", b"").count(b'"TextDelta"'):
            return "continued"
        same = (failed.backend, failed.model) == (about.get("backend", ""), about.get("model", ""))
        return "retry" if same else "failover"
    if "tool-runs.jsonl" in capture.files and _has_results(capture, number):
        return "tools"
    return "reask"


def _has_results(capture: LoadedCapture, number: int) -> bool:
    """Whether the request ends in the result of a tool that is not an error of the guard."""
    messages = capture.json(f"{number}/values.json").get("messages") or [{}]
    parts = messages[-1].get("parts", ())
    return any(part.get("is") == "ToolResult" and not part.get("is_error") for part in parts) or any(
        part.get("is") not in ("Text", "ToolCall", "ToolResult") for part in parts
    )


def _error_text(capture: LoadedCapture, number: int) -> str:
    """Returns the error of a backend call, or of its last request."""
    if error := capture.json(f"{number}/backend.json").get("error"):
        return str(error.get("text", ""))
    if count := capture.output_count(number):
        last = capture.model_output(number, count)[-1]
        if "error" in last:
            return str(last["error"].get("text", ""))
    return ""


def sent_lane(capture: LoadedCapture, calls: Sequence[SentCall], client: ParsedRequest | None) -> Lane:
    """Returns the lane.

    Args:
        capture: The exchange.
        calls: The calls of backends.
        client: The client's request, whose messages and tools are found in what was sent.
    """
    blocks: list[LaneBlock] = []
    for call in calls:
        blocks += _call_blocks(capture, call, client)
    modes = ", ".join(dict.fromkeys(" ".join(filter(None, (c.backend, c.mode, c.format))) for c in calls))
    summary = (
        f"{len(calls)} {'request' if len(calls) == 1 else 'requests'}: {modes}" if calls else "no backend was called"
    )
    return lane("sent", "what the model was asked", summary, blocks)


def _call_blocks(capture: LoadedCapture, call: SentCall, client: ParsedRequest | None) -> Iterator[LaneBlock]:
    number, about = call.number, capture.json(f"{call.number}/backend.json")
    reasons = [_WHY[call.why], *filter(None, ((about.get("model_mode") or {}).get("why"),))]
    notes = [
        ExchangeNote(
            code=call.why, message=_WHY[call.why], rule=f"tool mode: {reasons[-1]}" if len(reasons) > 1 else ""
        )
    ]
    if "error" in about:
        notes.append(error_note(about["error"]))
    title = " · ".join(filter(None, (f"{number}. {call.backend}", call.model, call.mode, call.format, _WHY[call.why])))
    yield LaneBlock(
        title=title,
        segments=segments(call.model or call.backend, "name", notes=notes),
        ms=about.get("ms"),
        number=number,
    )
    for count in range(1, capture.output_count(number) + 1):
        first = capture.model_output(number, count)[0]
        suffix = "" if count == 1 else " (sent again)"
        if prompt := capture.files.get(f"{number}/prompt-{count}.txt"):
            yield _prompt_block(f"prompt{suffix}", prompt.decode("utf-8", "replace"), client, first, number)
            continue
        sent = capture.files.get(f"{number}/sent-{count}.json", b"")
        for block in _request(sent, client):
            yield replace(block, title=f"{block.title}{suffix}", ms=first.get("ms"), number=number)


def _request(sent: bytes, client: ParsedRequest | None) -> Iterator[LaneBlock]:
    """Yields the parts of a request in the API of the server, linked to those of the client's request."""
    parsed = parse_request(sent)
    if parsed is None:
        if sent:
            yield LaneBlock(title="request", segments=segments(sent.decode("utf-8", "replace"), "plain"))
        return
    links = _message_links(parsed, client)
    described = () if client is None or parsed.tools else client.tools  # then they are in the text, if anywhere
    for block in request_blocks(parsed).blocks:
        link = links.get(block.link, "") if block.link.startswith("message:") else block.link
        parts = [replace(s, link=link if s.link.startswith("message:") else s.link) for s in block.segments]
        if described:
            parts = [each for segment in parts for each in _with_tools(segment, described)]
        yield replace(block, link=link, segments=tuple(parts))


def _with_tools(segment: Segment, tools: Sequence[BodyPart]) -> Iterator[Segment]:
    """Yields a text with the names and descriptions of the tools in it as segments of their own."""
    if segment.kind != "text":
        yield segment
        return
    found = [each for tool in tools for each in _find_tool(segment.text, tool)]
    cut = list(_cut(segment.text, found, segment.kind, segment.link))
    yield replace(cut[0], notes=segment.notes) if cut else segment
    yield from cut[1:]


def _cut(text: str, found: Iterable[_Found], kind: str, link: str) -> Iterator[Segment]:
    """Yields the text with what was found in it as segments of their own, and the rest with this kind and link."""
    at = 0
    for each in sorted(found):
        if each.start >= at:
            yield from segments(text[at : each.start], kind, link)
            yield from segments(text[each.start : each.end], each.kind, each.link)
            at = each.end
    yield from segments(text[at:], kind, link)


def _message_links(parsed: ParsedRequest, client: ParsedRequest | None) -> dict[str, str]:
    """Returns for each message of the sent request the link of the client's message with its text."""
    links: dict[str, str] = {}
    own = [] if client is None else [(part.key, _body_text(part)) for part in (*client.system, *client.messages)]
    places: dict[str, list[int]] = {}
    for index, (_, text) in enumerate(own):
        places.setdefault(text[:_KEY_CHARS], []).append(index)
    at = 0
    for part in (*parsed.system, *parsed.messages):
        text = _body_text(part)
        same = places.get(text[:_KEY_CHARS], ())
        index = same[first] if (first := bisect_left(same, at)) < len(same) else _next_like(own, at, text)
        if text and index >= 0:
            links[part.key] = own[index][0]
            at = index  # several messages may come from one, as results of calls do
    return links


def _next_like(own: Sequence[tuple[str, str]], at: int, text: str) -> int:
    """Returns which of the next messages has the beginning of this text, or begins it; -1: none."""
    begin = text[:_KEY_CHARS]
    near = range(at, min(len(own), at + _AHEAD))
    return next((i for i in near if begin in own[i][1] or own[i][1][:_KEY_CHARS] in text), -1)


def _body_text(part: BodyPart) -> str:
    """Returns the text of a message; of one without, its calls."""
    texts = [each.text for each in part.segments if each.kind in ("text", "reasoning")]
    return "".join(texts).strip() or "".join(each.text for each in part.segments if each.kind in ("name", "arguments"))


def _prompt_block(
    title: str, prompt: str, client: ParsedRequest | None, first: dict[str, Any], number: int
) -> LaneBlock:
    parts = tuple(_cut(prompt, _find_parts(prompt, client), "markup", ""))
    return LaneBlock(title=title, segments=parts, ms=first.get("ms"), number=number)


def _find_parts(prompt: str, client: ParsedRequest | None) -> Iterator[_Found]:
    """Yields where the texts of messages, and names and descriptions of tools, are in a prompt."""
    if client is None:
        return
    end, searched = len(prompt), BackwardSearch(prompt)
    for part in reversed((*client.system, *client.messages)):  # backwards, as tools are described before all of them
        for segment in reversed(part.segments):
            text = segment.text.strip()
            if text and segment.kind in ("text", "reasoning", "name") and (start := searched.find(text, end)) >= 0:
                yield _Found(start, start + len(text), part.key, segment.kind)
                end = start
    for tool in client.tools:
        yield from _find_tool(prompt, tool)


class BackwardSearch:
    """Finds the last place of texts in a text. `str.rfind` takes quadratic time for some texts, `str.find` does not."""

    def __init__(self, text: str) -> None:
        self._text, self._reversed = text, text[::-1]

    def find(self, expected: str, end: int) -> int:
        """Returns where the text begins that ends last; -1: nowhere. A short one must not be a part of a word.

        Args:
            expected: The text.
            end: Where it must have ended.
        """
        backwards, size = expected[::-1], len(self._text)
        at = size - end
        for _ in range(_MAX_TRIES):
            if (at := self._reversed.find(backwards, at)) < 0:
                break
            start = size - at - len(expected)
            if len(expected) > _WORD_CHARS or not self._is_in_word(start, start + len(expected)):
                return start
            at += 1
        return -1

    def _is_in_word(self, start: int, end: int) -> bool:
        return self._text[max(0, start - 1) : start].isalnum() or self._text[end : end + 1].isalnum()


def _find_tool(prompt: str, tool: BodyPart) -> Iterator[_Found]:
    name = tool.key.partition(":")[2]
    inner = tool.value.get("function") if isinstance(tool.value, dict) else None
    fields = inner if isinstance(inner, dict) else tool.value if isinstance(tool.value, dict) else {}
    if match := re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", prompt):
        yield _Found(match.start(), match.end(), tool.key, "name")
    description = fields.get("description")
    if isinstance(description, str) and len(description) > _MIN_CHARS:
        for text in (description, msgspec.json.encode(description).decode()[1:-1]):
            if (start := prompt.find(text)) >= 0:
                yield _Found(start, start + len(text), tool.key, "text")
                return
