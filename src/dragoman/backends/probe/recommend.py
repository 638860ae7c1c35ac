"""Recommends a tool mode from the findings; the first rule that fits:

    calls are returned, whole and streamed                        native
    a call is left in the text, or in the reasoning               parse, in that format
    calls are returned only whole or only streamed                native
    tools are dropped, or rejected                                prompt
    calls are returned if one is required                         native
    the model writes a call if the prompt describes the tools     prompt
    none of these                                                 native

Leaked calls are recovered in every mode.
"""

from collections.abc import Mapping

from dragoman.backends.probe.report import ProbeFinding, Recommendation
from dragoman.catalog.servers import Provider


def recommend(findings: Mapping[str, ProbeFinding], provider: Provider | None) -> Recommendation:
    """Returns the recommended mode, with the reason."""
    tools = findings["tool calls"]
    constraints = _working_constraints(findings, provider)
    if tools.verdict == "yes":
        return Recommendation("native", "its own tool calls come, whole and streamed", constrain=constraints)
    if leaked := tools.facts.get("leaked"):
        reason = f"a call was left in the {tools.facts['in']}, in what the format {leaked} reads"
        return Recommendation("parse", reason, "" if tools.facts["by_name"] else str(leaked), constraints)
    if tools.verdict == "partly":
        return Recommendation("native", tools.text, constrain=constraints)
    if tools.facts.get("dropped") or tools.facts.get("refused"):
        return Recommendation("prompt", f"tools do not reach the model: {tools.text}", _format(findings), constraints)
    if findings["tool_choice"].facts.get("required") == "yes":
        return Recommendation("native", "its tool calls come where one is required", constrain=constraints)
    if findings["prompted calls"].verdict == "yes":
        reason = "calls come where the prompt states the tools, and not by its API"
        return Recommendation("prompt", reason, _format(findings), constraints)
    return Recommendation(
        "native", f"no call could be had of it, so that nothing speaks for another mode: {tools.text}"
    )


def recommend_trusted(provider: Provider) -> Recommendation:
    """Returns the mode of a provider that need not be probed."""
    return Recommendation("native", f"tool calls of {provider.title} can be trusted", constrain=provider.constrain)


def _format(findings: Mapping[str, ProbeFinding]) -> str:
    """Returns the format in which calls were written, else that of the template; empty if the model's name
    implies it.
    """
    template, prompted = findings["chat template"].facts, findings["prompted calls"]
    if prompted.verdict == "yes" and prompted.facts["format"] != template["format"]:
        return str(prompted.facts["format"])
    return str(template["format"]) if template["by"] == "chat_template" else ""


def _working_constraints(findings: Mapping[str, ProbeFinding], provider: Provider | None) -> tuple[str, ...]:
    """Returns the provider's constraint methods that work."""
    works = findings["constrained"].facts if "constrained" in findings else {}
    order = provider.constrain if provider else tuple(works)
    return tuple(name for name in order if works.get(name) == "yes")
