"""PLaMo 3: tags around each part of a call, with the arguments marked as JSON.

    <|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>
    <|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|>
    <|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"city": "Paris"}
    <|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>

(The line breaks were added here.) Reasoning is in `<|plamo:begin_think:plamo|>…<|plamo:end_think:plamo|>`;
`<|plamo:tag|>` ends the reply. Also accepted: requests outside a section, arguments without the JSON mark, a missing
end tag of either.

Source: vllm/parser/plamo3.py of vLLM 0.33 (2026-10); the template was not available.
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner, markers


def tags(part: str) -> tuple[str, str]:
    """Returns the tags that begin and end a part."""
    return f"<|plamo:begin_{part}:plamo|>", f"<|plamo:end_{part}:plamo|>"


SECTION, REQUEST, NAME = tags("tool_requests"), tags("tool_request"), tags("tool_name")
ARGUMENTS, THINK = tags("tool_arguments"), tags("think")
CONSTRAIN, MESSAGE, END = "<|plamo:constrain|>", "<|plamo:msg|>", "<|plamo:tag|>"
OPENS_JSON: Final = f"{ARGUMENTS[0]}{CONSTRAIN}json{MESSAGE}"


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads the name between its tags and the tag that opens the arguments."""
    if not (yield from s.literal(NAME[0], after_space=True)):
        return None
    field = yield from s.field(markers(NAME[1]))
    if not field:
        return None
    if (yield from s.literal(ARGUMENTS[0], after_space=True)):
        for part in (CONSTRAIN, "json", MESSAGE):
            yield from s.literal(part, after_space=True)
    return CallHead(field[0].strip())


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{REQUEST[0]}{NAME[0]}{name}{NAME[1]}{OPENS_JSON}", f"{ARGUMENTS[1]}{REQUEST[1]}"


MARKUP: Final = Markup(
    calls={REQUEST[0]: NameThenJson(head, closers=(REQUEST[1],), fence=("", ARGUMENTS[1])).read},
    reasoning_tags={THINK[0]: THINK[1]},
    section=SECTION,
    closers=(REQUEST[1], END),
)

FORMAT: Final = json_format(
    name="plamo3",
    model_families="PLaMo 3",
    source="as vLLM 0.33's parser plamo3 reads it (2026-10); the template was not seen",
    read=MARKUP,
    call_wrapper=call_wrapper,
    opener=SECTION[0],
    markers=(*SECTION, *REQUEST, *NAME, *ARGUMENTS, *THINK, CONSTRAIN, MESSAGE, END),
    section=SECTION,
    separator="",
)
