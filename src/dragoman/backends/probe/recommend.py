"""How a server is best asked, by what was found; the first of these that fits:

    its calls come, whole and streamed                            native
    a call is left in the text, or in the thoughts                parse, in that format
    its calls come in one of the two ways                         native
    tools are dropped, or refused                                 inject
    it calls where it must                                        native
    it writes a call where the prompt states the tools            inject
    nothing of it                                                 native

What leaks is rescued in any of them.
"""

from collections.abc import Mapping

from dragoman.backends.probe.report import Choice, Finding
from dragoman.catalog.servers import ServerKind


def choose(findings: Mapping[str, Finding], kind: ServerKind | None) -> Choice:
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


def trusted(kind: ServerKind) -> Choice:
    """Of a kind that need not be measured."""
    return Choice("native", f"tool calls of {kind.title} can be trusted", constrain=kind.constrain)


def _format(findings: Mapping[str, Finding]) -> str:
    """The one in which calls came, else that of the template; what the model's name tells need not be said."""
    template, prompted = findings["chat template"].facts, findings["prompted calls"]
    if prompted.verdict == "yes" and prompted.facts["format"] != template["format"]:
        return str(prompted.facts["format"])
    return str(template["format"]) if template["by"] == "chat_template" else ""


def _best(findings: Mapping[str, Finding], kind: ServerKind | None) -> tuple[str, ...]:
    """Its kind's ways that work."""
    works = findings["constrained"].facts if "constrained" in findings else {}
    order = kind.constrain if kind else tuple(works)
    return tuple(name for name in order if works.get(name) == "yes")
