"""How a server is best asked, by what was found; the first of these that fits:

its calls come, whole and streamed, or its kind is trusted    native
a call is left in the text, or in the thoughts                parse, in that format
tools are dropped, or refused                                 inject
it calls where it must                                        native
it writes a call where the prompt states the tools            inject
nothing of it                                                 native: what leaks is rescued all the same
"""

from collections.abc import Mapping

from dragoman.backends.probe.report import Choice, Finding
from dragoman.profiles.servers import Kind


def choose(findings: Mapping[str, Finding], kind: Kind | None) -> Choice:
    """The choice, and the evidence for it."""
    tools = findings["tool calls"]
    held = _best(findings, kind)
    if tools.verdict == "yes":
        return Choice("native", "its own tool calls come, whole and streamed", constrain=held)
    if leaked := tools.facts.get("leaked"):
        words = f"a call was left in the {tools.facts['in']}, in what the format {leaked} reads"
        return Choice("parse", words, "" if tools.facts["by_name"] else str(leaked), held)
    if tools.verdict == "partly":
        return Choice("native", tools.words, constrain=held)
    if tools.facts.get("dropped") or tools.facts.get("refused"):
        return Choice("inject", f"tools do not reach the model: {tools.words}", _format(findings), held)
    if findings["tool_choice"].facts.get("required") == "yes":
        return Choice("native", "its tool calls come where one is required", constrain=held)
    if findings["prompted calls"].verdict == "yes":
        words = "calls come where the prompt states the tools, and not by its API"
        return Choice("inject", words, _format(findings), held)
    return Choice("native", f"no call could be had of it, so that nothing speaks for another mode: {tools.words}")


def trusted(kind: Kind) -> Choice:
    """Of a kind that need not be measured."""
    return Choice("native", f"tool calls of {kind.title} can be trusted", constrain=next(iter(kind.constrain), ""))


def _format(findings: Mapping[str, Finding]) -> str:
    """That of the template, where it tells one; by the model's name it is found anyway."""
    template = findings["chat template"].facts
    return str(template["format"]) if template["by"] == "chat_template" else ""


def _best(findings: Mapping[str, Finding], kind: Kind | None) -> str:
    """The first of its kind's ways that works."""
    works = findings["constrained"].facts if "constrained" in findings else {}
    order = kind.constrain if kind else tuple(works)
    return next((name for name in order if works.get(name) == "yes"), "")
