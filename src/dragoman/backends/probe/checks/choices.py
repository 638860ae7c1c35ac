"""Which forms of tool_choice are heeded: each is asked for against what the model would do by itself."""

from dragoman.backends.probe.client import Heard
from dragoman.backends.probe.context import ASKS_FOR_TOOL, CLOCK, GREETING, WEATHER, Subject, why
from dragoman.backends.probe.detect_format import begun, leaked
from dragoman.backends.probe.report import Finding, Verdict
from dragoman.core.messages import ToolChoice

WHAT = "tool_choice"


async def measure(subject: Subject) -> Finding:
    """Required where nothing is to be called, a named tool that is not the fitting one, none where one is asked for."""
    tools = subject.findings["tool calls"]
    if tools.verdict == "no" and not tools.facts.get("leaked"):
        return Finding(WHAT, "unknown", "not asked: the server takes no tools")
    asker = subject.asker
    required = await asker.ask(asker.request(GREETING, tools=[WEATHER], choice=ToolChoice("required")))
    named = await asker.ask(
        asker.request(
            ASKS_FOR_TOOL, tools=[WEATHER, CLOCK], choice=ToolChoice("named", CLOCK.name), before=subject.examples
        )
    )
    none = await asker.ask(
        asker.request(ASKS_FOR_TOOL, tools=[WEATHER], choice=ToolChoice("none"), before=subject.examples)
    )
    facts = {
        "required": _so(required, bool(_called(required, subject))),
        "named": _so(named, set(_called(named, subject)) == {CLOCK.name}),
        "none": _so(none, not none.calls and leaked(none.text, [WEATHER], subject.model) is None),
    }
    if all(heard.reply is None for heard in (required, named, none)):
        return Finding(WHAT, "unknown", why(required), facts)
    heeded = list(facts.values())
    verdict: Verdict = "yes" if all(each == "yes" for each in heeded) else "partly" if "yes" in heeded else "no"
    return Finding(WHAT, verdict, ", ".join(f"{form} {so}" for form, so in facts.items()), facts)


def _called(heard: Heard, subject: Subject) -> tuple[str, ...]:
    """Names of the tools that were called; a call that the limit on tokens cut comes as text, and counts too."""
    if heard.calls or not heard.cut_off:
        return tuple(call.name for call in heard.calls)
    return begun(heard.text, [WEATHER, CLOCK], subject.model)


def _so(heard: Heard, heeded: bool) -> str:
    if heard.reply is None:
        return "refused"
    return "yes" if heeded else "no"
