"""Whether tools come back as tool calls: whole and streamed; and where not, what became of them.

    a call left in the text            the server shows the model its tools, and does not read what it writes
    a prompt as long as without tools  the server, or its template, drops them
    a longer prompt, and no call       the model was shown them, and did not want to
    refused                            in the server's words

A model that was shown them and did not want to is asked once more, behind two examples.
"""

from msgspec.structs import replace

from dragoman.backends.probe.client import Heard
from dragoman.backends.probe.context import ASKS_FOR_TOOL, EXAMPLES, WEATHER, Subject, shown, why
from dragoman.backends.probe.detect_format import leaked
from dragoman.backends.probe.report import Finding
from dragoman.core.messages import Message

WHAT = "tool calls"


async def measure(subject: Subject) -> Finding:
    """One clear question with one tool, twice."""
    finding = await _asked(subject, ())
    if finding.verdict != "unknown" or not finding.facts.get("shown"):
        return finding
    again = await _asked(subject, EXAMPLES)
    if again.verdict == "unknown" or again.facts.get("refused"):
        return finding
    return Finding(WHAT, again.verdict, f"behind two examples: {again.words}", {**again.facts, "examples": True})


async def _asked(subject: Subject, before: tuple[Message, ...]) -> Finding:
    asker = subject.asker
    asked = asker.request(ASKS_FOR_TOOL, tools=[WEATHER], before=before)
    whole = subject.heard["call"] = await asker.ask(asked)
    streamed = subject.heard["streamed call"] = await asker.ask(replace(asked, stream=True, stream_usage=True))
    came = {name: heard for name, heard in (("whole", whole), ("streamed", streamed)) if _called(heard)}
    if len(came) == 2:
        call = whole.calls[0]
        return Finding(
            WHAT, "yes", f"{call.name}({call.arguments}), whole and streamed", {"whole": True, "streamed": True}
        )
    other = streamed if "whole" in came else whole
    missing = await _missing(subject, other, before)
    if came:
        name = next(iter(came))
        facts = {"whole": "whole" in came, "streamed": "streamed" in came, **missing.facts}
        return Finding(WHAT, "partly", f"{name} only; else {missing.words}", facts)
    return missing


def _called(heard: Heard) -> bool:
    return any(call.name == WEATHER.name for call in heard.calls)


async def _missing(subject: Subject, heard: Heard, before: tuple[Message, ...]) -> Finding:
    """What became of the tools."""
    if heard.reply is None:
        refused = getattr(heard.error, "status", None) in (400, 404, 405, 422, 500, 501)
        facts = {"refused": True} if refused else {}
        return Finding(WHAT, "no" if refused else "unknown", why(heard), facts)
    for text, where in ((heard.text, "text"), (heard.thoughts, "thoughts")):
        if (found := leaked(text, [WEATHER], subject.model)) is not None:
            how = f"in the format {found.format}" if found.tagged else "as JSON without the format's tags"
            told = f"the call is left in the {where}, {how}: {shown(text)}"
            return Finding(
                WHAT,
                "no",
                told,
                {"leaked": found.format, "tagged": found.tagged, "by_name": found.by_name, "in": where},
            )
    if heard.cut_off and not heard.text:
        return Finding(WHAT, "unknown", f"it was still thinking after {heard.usage.output_tokens} tokens")
    plain = await subject.asker.ask(subject.asker.request(ASKS_FOR_TOOL, tokens=1, before=before))
    more = heard.usage.input_tokens - plain.usage.input_tokens
    if plain.reply is not None and plain.usage.input_tokens and more <= 0:
        longer = await subject.asker.ask(subject.asker.request(ASKS_FOR_TOOL, tokens=1, before=(*before, *EXAMPLES)))
        if longer.usage.input_tokens <= plain.usage.input_tokens:
            words = f"{plain.usage.input_tokens} prompt tokens are reported for every prompt, so they say nothing"
            return Finding(WHAT, "unknown", f"{words}; the model wrote {shown(heard.text)}", {"shown": True})
        told = f"dropped: the prompt has {heard.usage.input_tokens} tokens with tools and without"
        return Finding(WHAT, "no", told, {"dropped": True})
    seen = f"it was shown the tools ({more} tokens)" if plain.usage.input_tokens else "no call came"
    return Finding(WHAT, "unknown", f"{seen}; the model wrote {shown(heard.text)}", {"shown": more > 0})
