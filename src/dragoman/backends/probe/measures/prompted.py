"""Whether the model writes a call where the prompt itself states the tools, in the model's own format."""

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.probe.leaked import leaked
from dragoman.backends.probe.report import Finding
from dragoman.backends.probe.subject import ASKS_FOR_TOOL, WEATHER, Subject, shown, why
from dragoman.core.chat import as_chat
from dragoman.core.values import Message, Text

WHAT = "prompted calls"


async def measure(subject: Subject) -> Finding:
    """Only of use where the server's own calls do not come."""
    tools = subject.findings["tool calls"]
    if tools.verdict in ("yes", "partly") or "leaked" in tools.facts:
        return Finding(WHAT, "unknown", "not asked: tools reach the model")
    format = formats.get(subject.findings["chat template"].facts["format"])
    asker = subject.asker
    turns = as_chat(asker.request(ASKS_FOR_TOOL, tools=[WEATHER]), format)
    plain = replace(asker.request(""), messages=tuple(Message(turn.role, (Text(turn.text),)) for turn in turns))
    heard = await asker.ask(plain)
    if heard.reply is None:
        return Finding(WHAT, "unknown", why(heard))
    if (found := leaked(heard.text, [WEATHER], subject.model)) is not None:
        return Finding(WHAT, "yes", f"the model wrote a call, in the format {found.format}", {"format": format.name})
    return Finding(WHAT, "no", f"the model wrote {shown(heard.text)}", {"format": format.name})
