"""Detects a model's format by its chat template (Jinja).

The template renders a conversation in which the model has made a unique call, and the readers of all formats read the
result. The format is the one that reads exactly that call:

    <tool_call>
    {"name": "probe_town", "arguments": {"town": "Probe Hill", "days": 3}}
    </tool_call>

Of several formats the one is preferred that would write the call in the same way, and whose markers occur in the
template. If the template does not render past calls, or cannot be rendered, its source is searched for markers that
open a call.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.api.prompt_suffix import find_open_reasoning, known_formats
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Text, ToolCall
from dragoman.parsing.format import Format
from dragoman.parsing.tool_markup import GENERIC

if TYPE_CHECKING:
    from dragoman.prompting.jinja_sandbox import Renderable

NAME: Final = "probe_town"
PROBE_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = ({"town": "Probe Hill", "days": 3}, {"town": "Probe Hill"})
"""Arguments of the call. Some templates write all values as strings, or nothing between two arguments."""
CALL_ID: Final = "probe0001"
"""Nine letters and digits: Mistral's templates reject any other id."""
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Probes a town.",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "description": "Which."},
                "days": {"type": "integer", "description": "How long."},
            },
            "required": ["town"],
        },
    },
}
USER_MESSAGE: Final = {"role": "user", "content": "Please probe the hill."}
CALLS: Final = tuple(ToolCall(CALL_ID, NAME, json.dumps(arguments)) for arguments in PROBE_ARGUMENTS)
_EMPTY_FRAME: Final = re.compile(r"<\|(\w+)_start\|><\|\1_end\|>")
"""Llama 4's template writes this before a call without text."""


class TemplateMatch(NamedTuple):
    """What a chat template shows about its model's format."""

    format: str
    """The name of the format; "" if the template does not show it."""
    why: str
    prompt_suffix: str
    """What the generation prompt leaves open."""
    reasoning_tags: tuple[str, str] | None
    """The markers before and after reasoning."""
    rendered: bool
    """Whether a rendered call was read back; otherwise only literals of the template are evidence."""


class _Rendered(NamedTuple):
    call: ToolCall
    """The call that was rendered."""
    reply: str
    """What the model would have written."""
    prompt_opening: str
    """The part of the reply that the prompt had opened."""
    prompt_suffix: str
    """What the prompt leaves open at the beginning of the reply."""
    prompt: str


def match_template(source: str) -> TemplateMatch:
    """Returns what the template with this source shows; never fails, because models have templates of any kind."""
    if not source:
        return TemplateMatch("", "no chat template was given", "", None, rendered=False)
    tail, problem = "", "it writes no calls"
    try:
        for rendered in _renderings(source):
            tail = rendered.prompt_suffix
            fitting = _matching_formats(rendered, source) if NAME in rendered.reply else []
            if fitting and not _has_other_format(rendered, fitting):
                return _match(fitting, tail, source)
            if NAME in rendered.reply:
                problem = "it writes calls as no known format does, or not as it asks for them"
    except ConfigError as e:
        problem = str(e)
    return _match_literals(source, problem, tail)


def _has_other_format(rendered: _Rendered, fitting: Sequence[Format]) -> bool:
    """Whether past calls are written without markers, but the prompt shows markers of a format that could not have read
    them.
    """
    if rendered.reply.lstrip()[:1] not in ("{", "[") or _openers_in(fitting[0], rendered.reply):
        return False
    names = {format.name for format in fitting}
    return any(_openers_in(f, rendered.prompt) for f in known_formats() if f.name not in names)


def _match(fitting: Sequence[Format], tail: str, source: str) -> TemplateMatch:
    best, *others = fitting
    others_text = f"; so do {', '.join(f.name for f in others)}, which it fits less" if others else ""
    why = f"the chat template's own call is read back by {best.name}{others_text}"
    return TemplateMatch(best.name, why, tail, _reasoning_markers(best, source, tail), rendered=True)


def _match_literals(source: str, problem: str, tail: str) -> TemplateMatch:
    """Of the formats with an opener in the template, the one with most of its markers there."""
    candidates = [f for f in known_formats() if _openers_in(f, source)]
    if not candidates:
        return TemplateMatch(
            "", f"the chat template names no tool-call markers ({problem})", tail, None, rendered=False
        )
    best = min(candidates, key=lambda f: native_rank(f, source))
    opener = _openers_in(best, source)[0]
    why = f"{opener!r} stands in the chat template ({problem})"
    return TemplateMatch(best.name, why, tail, _reasoning_markers(best, source, tail), rendered=False)


def _renderings(source: str) -> Iterator[_Rendered]:
    """Yields the rendered call, for each shape of a message that templates expect.

    Raises:
        ConfigError: The template cannot be rendered at all.
    """
    from dragoman.prompting import jinja_sandbox, render_process

    template, problem, any_rendered = render_process.load_template(source), "", False
    for call, as_text, content in product(CALLS, (False, True), ("", None)):
        arguments = call.arguments if as_text else json.loads(call.arguments)
        rendered_call = {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}
        try:
            yield _render(template, call, {"role": "assistant", "content": content, "tool_calls": [rendered_call]})
        except jinja_sandbox.RENDER_ERRORS as e:
            problem = problem or f"it refuses a call: {e}"
        else:
            any_rendered = True
    if not any_rendered:
        raise ConfigError(problem)


def _render(template: "Renderable", call: ToolCall, assistant: Mapping[str, Any]) -> _Rendered:
    def text(*messages: Mapping[str, Any], prompt: bool = False) -> str:
        tokens = {"bos_token": "", "eos_token": ""}
        return template.render(messages=[*messages], tools=[TOOL], add_generation_prompt=prompt, **tokens)

    before, opened, with_reply = text(USER_MESSAGE), text(USER_MESSAGE, prompt=True), text(USER_MESSAGE, assistant)
    tail = find_open_reasoning(opened[_common_prefix_chars(before, opened) :])
    if with_reply.startswith(opened):
        return _Rendered(call, with_reply[len(opened) :], tail, tail, opened)
    # Past reasoning is omitted or closed: the reply begins before the prompt opens any.
    head = opened.removesuffix(tail)
    start = len(head) if with_reply.startswith(head) else _common_prefix_chars(before, with_reply)
    return _Rendered(call, with_reply[start:], "", tail, opened)


def _common_prefix_chars(one: str, other: str) -> int:
    """How many characters both texts begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _matching_formats(rendered: _Rendered, source: str) -> list[Format]:
    """The formats that read the call back, the best first."""
    reply = _EMPTY_FRAME.sub("", rendered.reply, count=1)

    def rank(format: Format, left: int) -> tuple[object, ...]:
        calls = (rendered.call, msgspec.structs.replace(rendered.call, id=""))
        written = [format.section[0] + format.write_call(call) + format.section[1] for call in calls]
        native = any("".join(text.split()) in "".join(reply.split()) for text in written)
        unused, *markers = native_rank(format, source)
        return left, not native, unused, not any(text in reply for text in written), *markers

    read = [(format, _unread_chars(reply, format, rendered)) for format in known_formats()]
    ranked = sorted((rank(format, left), format.name) for format, left in read if left is not None)
    return [formats.get(name) for _, name in ranked]


def _unread_chars(reply: str, format: Format, rendered: _Rendered) -> int | None:
    """How much text the format's reader leaves next to the call; None if it reads anything else than the call."""
    parts = parse(reply, format, [TOOL], prompt_suffix=rendered.prompt_opening).parts
    calls = [(part.name, _decode_or_none(part.arguments)) for part in parts if isinstance(part, ToolCall)]
    if calls != [(NAME, json.loads(rendered.call.arguments))]:
        return None
    return sum(len(part.text) for part in parts if isinstance(part, Text))


def _decode_or_none(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return None


def native_rank(format: Format, source: str) -> tuple[int, int, int, str]:
    """Returns a sort key: the smaller, the better the template matches the format.

    It has the number of openers that the template lacks, the negative number of markers that it has, the number of all
    markers, and the name.
    """
    own = [marker.strip() in source for marker in format.markers if marker not in GENERIC]
    return len(format.calls) - len(_openers_in(format, source)), -sum(own), len(own), format.name


def _openers_in(format: Format, source: str) -> list[str]:
    return [bare for opener in format.calls if (bare := opener.strip("\n")) in source]


def _reasoning_markers(format: Format, source: str, tail: str) -> tuple[str, str] | None:
    pairs = (*format.reasoning_tags.items(), ("<think>", "</think>"))
    return next((pair for pair in pairs if pair[0] == tail.strip() or all(marker in source for marker in pair)), None)
