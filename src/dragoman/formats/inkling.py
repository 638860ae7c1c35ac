"""Inkling: messages of typed content; a call is one JSON object.

    <|message_model|><|content_thinking|>They want the weather.<|end_message|>
    <|message_model|>get_weather<|content_invoke_tool_json|>{"name":"get_weather","args":{"city":"Paris"}}
    <|end_message|><|content_model_end_sampling|>

(The line breaks were added here.) The answer has the type `<|content_text|>`. The prompt ends with `<|message_model|>`,
so a reply may begin with a name, which the object also contains. The encoder sorts the arguments' keys and removes
blanks; Dragoman keeps them. Also accepted: no name in the header, `arguments` for `args`, a message without an end.

Source: the chat encoding of Inkling, as in vLLM 0.33 (renderers/inkling_encoding.py) and SGLang 0.5.23 (2026-10); the
vendor's own encoder was not available.
"""

import json
import re
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels, name_reader
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.json_block import JsonBlock
from dragoman.parsing.shapes.json_object import JsonCallKeys

MODEL, THINKING, TEXT = "<|message_model|>", "<|content_thinking|>", "<|content_text|>"
CALL: Final = "<|content_invoke_tool_json|>"
END, MESSAGE_END = "<|end_message|>", "<|content_model_end_sampling|>"
ROUTES: Final = {THINKING: ChannelRoute("reasoning"), TEXT: ChannelRoute("text"), CALL: ChannelRoute("call")}
_HEADER = re.compile(rf"\s*(?:{re.escape(MODEL)})?([\w.-]*)\s*")


def route(header: str, marker: str) -> ChannelRoute | None:
    """Routes a message by the type of its content; only calls have a name."""
    match = _HEADER.fullmatch(header)
    return ROUTES[marker] if match and (marker == CALL or not match[1]) else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f'{MODEL}{name}{CALL}{{"name":{json.dumps(name, ensure_ascii=False)},"args":', f"}}{END}"


MESSAGES: Final = Channels(
    starts=(MODEL, *ROUTES),
    bodies=tuple(ROUTES),
    route=route,
    call=JsonBlock(JsonCallKeys(arguments=("args", "arguments", "parameters")), END, may_stay_open=True).read,
    ends={END: ANYTHING, MESSAGE_END: ANYTHING},
    breaks=(MODEL,),
    read_opened_header=name_reader(CALL),
)

FORMAT: Final = json_format(
    name="inkling",
    model_families="Inkling",
    source="renderers/inkling_encoding.py of vLLM 0.33 (2026-10)",
    read=MESSAGES,
    call_wrapper=call_wrapper,
    opener=MODEL,
    reasoning_wrapper=(THINKING, END),
    markers=(MODEL, *ROUTES, END, MESSAGE_END, "<|message_tool|>"),
    separator="",
)
