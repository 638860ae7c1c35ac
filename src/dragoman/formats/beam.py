"""Beam: Harmony messages, with a call's parameters between tags.

    <|channel|>analysis<|message|>They want the weather.<|end|>
    <|start|>assistant to=get_weather<|channel|>analysis <|constrain|>xml<|message|>
    <rfl:parameter name="city">
    Paris
    </rfl:parameter><|call|>

(Line breaks were added here, except those around values, which are framing.) `analysis` is reasoning, `final` and
`commentary` are text; a message with a recipient is a call. The prompt ends with `<|start|>assistant`.

Source: the response template of Beam in vLLM 0.33 and SGLang 0.5.23 (2026-10). According to both, the model writes
arguments sorted by name; Dragoman keeps the order it received. The chat template was not available.
"""

import re
from dataclasses import replace
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels, read_recipient
from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.invoke_tags import InvokeTags
from dragoman.parsing.shapes.name_then_json import CallHead, head_in_header
from dragoman.parsing.shapes.tagged import TaggedParameters

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
TAGS: Final = InvokeTags(call=("", ""), parameter=("<rfl:parameter", "</rfl:parameter>"), newlines=True, lines=False)
_HEADER = re.compile(
    r"\s*(?:<\|start\|>\s*assistant\b)?\s*(?:to=([^\s<]+))?\s*(?:<\|channel\|>\s*(\w+))?\s*(?:to=([^\s<]+))?\s*"
    r"(?:(?:<\|constrain\|>)?\s*xml)?\s*"
)


def route(header: str, _: str) -> ChannelRoute | None:
    """Routes a message by its recipient, then by its channel."""
    match = _HEADER.fullmatch(header)
    if not match:
        return None
    if match[1] or match[3]:
        return ChannelRoute("call")
    problem = "" if match[2] in (None, "analysis", "commentary", "final") else "an unknown channel"
    return ChannelRoute("reasoning" if match[2] == "analysis" else "text", problem)


def head(header: str) -> CallHead | None:
    """Returns the recipient in the header."""
    match = _HEADER.fullmatch(header.removesuffix(MESSAGE))
    return CallHead((match[1] or match[3]).removeprefix("functions.")) if match else None


def call_wrapper(name: str) -> tuple[str, str]:
    """Returns the text before and after the parameters: a message to the tool, without the role."""
    return f" to={name}{CHANNEL}analysis {CONSTRAIN}xml{MESSAGE}", CALL


TAGGED: Final = TaggedParameters(
    head_in_header(head),
    key_open=TAGS.parameter[0],
    key=TAGS.read_key,
    value_close=TAGS.parameter[1],
    call_close=(CALL, END, RETURN),
    openers=(START,),
    newlines=True,
    names=TAGS.names,
)
WRITER: Final = replace(TAGS.writer, call_wrapper=call_wrapper, closers=TAGGED.closers)
MARKUP: Final = Channels(
    starts=(START, CHANNEL),
    bodies=(MESSAGE,),
    route=route,
    call=TAGGED.read,
    ends={END: ANYTHING, RETURN: ANYTHING, CALL: ((START,), ("",))},
    breaks=(START,),
    read_opened_header=read_recipient,
)

FORMAT: Final = text_format(
    name="beam",
    model_families="Beam",
    source="response template of Beam in vLLM 0.33 and SGLang 0.5.23 (2026-10); the chat template was not seen",
    read=MARKUP,
    write_call=WRITER.write_call,
    constrain_call=WRITER.constrain_call,
    opener="",
    reasoning_wrapper=(f"{CHANNEL}analysis{MESSAGE}", f"{END}{START}assistant"),
    reasoning_markers=(f"{CHANNEL}analysis",),
    markers=(START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN, *TAGS.parameter),
    separator=f"{START}assistant",
)
