"""Harmony: messages on channels; one that is addressed to a function is a call of it.

    <|channel|>analysis<|message|>They want the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}
    <|call|>

(No line breaks; gpt-oss.) `analysis` is thoughts; `final`, and `commentary` to nobody, are text. The recipient may
stand in the role, `assistant to=functions.get_weather<|channel|>commentary`; the prompt has opened the role. Seen and
taken: calls on any channel, no `functions.`, `json` without its token or no type at all, two channels in one header
(the last counts), no `<|call|>`. A call of a built-in tool (`python`, `browser.search`) is dropped with a warning.

Source: docs/format.md of openai/harmony, also in OpenAI's cookbook (2025-08). The chat template of openai/gpt-oss-120b
has the recipient in the role and `json` without its token.
"""

import re
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
BUILT_IN: Final = ("python", "browser", "container")
NOBODY: Final = ("assistant", "user", "all")
CHANNELS: Final = {"analysis": "reasoning", "commentary": "text", "final": "text"}
_PIECE = re.compile(r"\s*(?:(<\|start\|>|<\|channel\|>|<\|constrain\|>)\s*|(to=)([^\s<]+)|(\w+))")


def parts(header: str) -> dict[str, str] | None:
    """The last of each: `to=` has the recipient, a token the word behind it, "" any other; None: this is no header."""
    found, at, token = {"": ""}, 0, ""
    while piece := _PIECE.match(header, at):
        at, token = piece.end(), piece[1] or token
        if not piece[1]:
            found[piece[2] or token] = piece[3] or piece[4]
            token = ""
    return None if header[at:].strip() else found


def recipient(found: dict[str, str]) -> str:
    """The function or tool that the message is for."""
    to = found.get("to=", "")
    return "" if to in NOBODY else to


def route(header: str, _: str) -> ChannelRoute | None:
    """By recipient, then by channel."""
    found = parts(header)
    if found is None or not {"to=", CHANNEL} & found.keys():
        return None
    to, channel = recipient(found), found.get(CHANNEL, "")
    if to.partition(".")[0] in BUILT_IN:
        return ChannelRoute("builtin")
    if to:
        return ChannelRoute("call")
    known = found.get(START, "assistant") == "assistant" and found[""] in ("", "assistant", "json", "text")
    problem = "" if known and channel in CHANNELS else "an unknown channel, role or type"
    return ChannelRoute("reasoning" if channel == "analysis" else "text", problem)


def head(_: Scanner, header: str) -> Parser[CallHead | None]:
    """The recipient in the header, which has been read."""
    yield from ()
    found = parts(header.removesuffix(MESSAGE)) or {}
    return CallHead(recipient(found).removeprefix("functions."))


def read_recipient(s: Scanner) -> Parser[bool]:
    """Behind `<|start|>assistant` the recipient may come."""
    return bool((yield from s.literal("to=", after_space=True)))


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """What stands before and behind the arguments."""
    return f"{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}", CALL


MESSAGES: Final = Channels(
    starts=(START, CHANNEL),
    bodies=(MESSAGE,),
    route=route,
    call=NameThenJson(head, closers=(CALL, END, RETURN), may_stay_open=True).read,
    ends={END: ANYTHING, RETURN: ANYTHING, CALL: ((START,), ("",))},
    breaks=(START,),
    read_opened_header=read_recipient,
)

FORMAT: Final = json_format(
    name="harmony",
    model_families="gpt-oss",
    source="docs/format.md of openai/harmony, also in OpenAI's cookbook (2025-08)",
    read=MESSAGES,
    call_wrapper=call_wrapper,
    opener=f"{CHANNEL}commentary to=functions.",
    reasoning_markers=(f"{CHANNEL}analysis",),
    reasoning_wrapper=(f"{CHANNEL}analysis{MESSAGE}", f"{END}{START}assistant"),
    markers=(START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN),
    separator=f"{START}assistant",
    aliases=("gpt_oss", "openai"),
)
