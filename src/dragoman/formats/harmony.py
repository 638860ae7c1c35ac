"""Harmony: messages on channels; a message to a function is a call.

    <|channel|>analysis<|message|>They want the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}
    <|call|>

(gpt-oss; the line breaks were added here.) `analysis` is reasoning; `final`, and `commentary` without a recipient, are
text. The recipient may be in the role, `assistant to=functions.get_weather<|channel|>commentary`; the prompt ends with
the role. Also accepted: calls on any channel, no `functions.`, `json` without its token or no type, two channels in one
header (the last one is used), no `<|call|>`. A call of a built-in tool (`python`, `browser.search`) is dropped with a
warning.

Source: docs/format.md of openai/harmony, also in OpenAI's cookbook (2025-08). The chat template of openai/gpt-oss-120b
writes the recipient in the role and `json` without its token.
"""

import re
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels, read_recipient
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson, head_in_header

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
BUILT_IN: Final = ("python", "browser", "container")
NOBODY: Final = ("assistant", "user", "all")
CHANNELS: Final = {"analysis": "reasoning", "commentary": "text", "final": "text"}
_PIECE = re.compile(r"\s*(?:(<\|start\|>|<\|channel\|>|<\|constrain\|>)\s*|(to=)([^\s<]+)|(\w+))")


def parts(header: str) -> dict[str, str] | None:
    """Returns the last value of each part, by `to=`, token or "" (any other word); None: this is not a header."""
    fields, at, token = {"": ""}, 0, ""
    while piece := _PIECE.match(header, at):
        at, token = piece.end(), piece[1] or token
        if not piece[1]:
            fields[piece[2] or token] = piece[3] or piece[4]
            token = ""
    return None if header[at:].strip() else fields


def recipient(fields: dict[str, str]) -> str:
    """Returns the function or tool that the message is addressed to."""
    target = fields.get("to=", "")
    return "" if target in NOBODY else target


def route(header: str, _: str) -> ChannelRoute | None:
    """Routes a message by its recipient, then by its channel."""
    fields = parts(header)
    if fields is None or not {"to=", CHANNEL} & fields.keys():
        return None
    target, channel = recipient(fields), fields.get(CHANNEL, "")
    if target.partition(".")[0] in BUILT_IN:
        return ChannelRoute("builtin")
    if target:
        return ChannelRoute("call")
    known = fields.get(START, "assistant") == "assistant" and fields[""] in ("", "assistant", "json", "text")
    problem = "" if known and channel in CHANNELS else "an unknown channel, role or type"
    return ChannelRoute("reasoning" if channel == "analysis" else "text", problem)


def head(header: str) -> CallHead:
    """Returns the recipient in the header."""
    fields = parts(header.removesuffix(MESSAGE)) or {}
    return CallHead(recipient(fields).removeprefix("functions."))


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}", CALL


MESSAGES: Final = Channels(
    starts=(START, CHANNEL),
    bodies=(MESSAGE,),
    route=route,
    call=NameThenJson(head_in_header(head), closers=(CALL, END, RETURN), may_stay_open=True).read,
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
