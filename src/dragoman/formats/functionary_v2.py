"""Functionary v2: messages to recipients; a message to a function is a call.

    <|from|>assistant
    <|recipient|>all
    <|content|>Let me look.
    <|from|>assistant
    <|recipient|>get_weather
    <|content|>{"city": "Paris"}<|stop|>

Written by functionary-small and medium v2.2 to v2.5. The prompt ends with `<|from|>assistant` or with `<|recipient|>`.
A message to `all` is text. The end of the JSON object ends the arguments.

Source: chat template of meetkai/functionary-medium-v2.2 (2024-01), from public copies;
https://github.com/MeetKai/functionary, tests/prompt_test_v2.txt (2024-01).
"""

import re
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels, name_reader
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson, head_in_header

FROM, RECIPIENT, CONTENT, STOP, ALL = "<|from|>", "<|recipient|>", "<|content|>", "<|stop|>", "all"
_HEADER = re.compile(r"\s*+(?:<\|from\|>\s*+assistant\s*+)?(?:<\|recipient\|>\s*+)?([\w.-]+)\s*+")


def route(header: str, _: str) -> ChannelRoute | None:
    """Routes a message by its recipient."""
    match = _HEADER.fullmatch(header)
    return ChannelRoute("text" if match[1] == ALL else "call") if match else None


def head(header: str) -> CallHead | None:
    """Returns the recipient in the header."""
    match = _HEADER.fullmatch(header.removesuffix(CONTENT))
    return CallHead(match[1]) if match else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{FROM}assistant\n{RECIPIENT}{name}\n{CONTENT}", ""


MESSAGES: Final = Channels(
    starts=(FROM, RECIPIENT),
    bodies=(CONTENT,),
    route=route,
    call=NameThenJson(head_in_header(head)).read,
    ends={STOP: ANYTHING},
    breaks=(FROM,),
    read_opened_header=name_reader(f"\n{CONTENT}"),
)

FORMAT: Final = json_format(
    name="functionary_v2",
    model_families="functionary v2.2 to v2.5",
    source="chat template of meetkai/functionary-medium-v2.2 (2024-01), as public copies have it",
    read=MESSAGES,
    call_wrapper=call_wrapper,
    opener=FROM,
    markers=(FROM, RECIPIENT, CONTENT, STOP),
    aliases=("functionary_v2_2",),
)
