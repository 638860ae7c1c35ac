"""Whether the model writes a call where the prompt itself states the tools: in its own format, or in another one."""

from typing import Final

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.probe.client import Heard
from dragoman.backends.probe.context import ASKS_FOR_TOOL, EXAMPLES, WEATHER, Subject, shown, why
from dragoman.backends.probe.detect_format import calls_in
from dragoman.backends.probe.report import Finding
from dragoman.core.messages import Message, Text
from dragoman.parsing.format import Format
from dragoman.prompting.chat_renderer import render_chat

WHAT = "prompted calls"
_ALSO: Final = "pythonic"
"""What the smallest models copy best: SmolLM2 135M repeats a result in place of a call in the format of Hermes."""


async def measure(subject: Subject) -> Finding:
    """Only of use where the server's own calls do not come."""
    tools = subject.findings["tool calls"]
    if tools.verdict in ("yes", "partly") or "leaked" in tools.facts:
        return Finding(WHAT, "unknown", "not asked: tools reach the model")
    own = formats.get(subject.findings["chat template"].facts["format"])
    first = await _asked(subject, own, ())
    if first.reply is None:
        return Finding(WHAT, "unknown", why(first))
    if calls_in(first.text, own, [WEATHER]):
        return Finding(WHAT, "yes", f"the model wrote a call, in the format {own.name}", {"format": own.name})
    for name in dict.fromkeys((own.name, _ALSO)):
        heard = await _asked(subject, formats.get(name), EXAMPLES)
        if calls_in(heard.text, formats.get(name), [WEATHER]):
            words = f"behind two examples the model wrote a call, in the format {name}"
            return Finding(WHAT, "yes", words, {"format": name, "examples": True})
    return Finding(WHAT, "no", f"the model wrote {shown(first.text)}", {"format": own.name})


async def _asked(subject: Subject, format: Format, before: tuple[Message, ...]) -> Heard:
    asker = subject.asker
    turns = render_chat(asker.request(ASKS_FOR_TOOL, tools=[WEATHER], before=before), format)
    messages = tuple(Message(turn.role, (Text(turn.text),)) for turn in turns)
    return await asker.ask(replace(asker.request(""), messages=messages))
