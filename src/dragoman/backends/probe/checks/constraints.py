"""Which ways to hold the model to a grammar are offered: one that only allows an unlikely word."""

import re
from typing import Final

import msgspec

from dragoman.backends.probe.context import GREETING, ProbeContext, quote_line
from dragoman.backends.probe.report import ProbeFinding
from dragoman.backends.probe.server_info import decode_or_none, values_at
from dragoman.backends.text_mode import completions
from dragoman.catalog import servers
from dragoman.core.errors import UpstreamError
from dragoman.identify import detect_format

_CONSTRAINT_TOKENS = 24


async def check_constraints(context: ProbeContext) -> ProbeFinding:
    """Checks the constraint methods of the provider; all of them if the provider is not known."""
    methods = [
        each for each in servers.constraints() if context.provider is None or each.name in context.provider.constrain
    ]
    if not methods:
        return ProbeFinding("constrained", "unknown", "not asked: its provider offers none", {})
    facts: dict[str, str] = {}
    for method in methods:
        client = context.client
        extra = msgspec.json.decode(method.body, type=dict[str, msgspec.Raw])
        answer = await client.ask(client.request(GREETING, tokens=_CONSTRAINT_TOKENS, extra=extra))
        if answer.reply is not None:
            facts[method.name] = "yes" if re.search(method.answer_pattern, answer.text.strip()) else "ignored"
        else:
            facts[method.name] = "refused" if isinstance(answer.error, UpstreamError) else "no answer"
    works = [name for name, verdict in facts.items() if verdict == "yes"]
    summary = ", ".join(f"{name} {verdict}" for name, verdict in facts.items())
    if set(facts.values()) == {"no answer"}:
        return ProbeFinding("constrained", "unknown", summary, facts)
    return ProbeFinding("constrained", "yes" if works else "no", summary, facts)


_TOOLS_VARIABLE: Final = re.compile(r"\btools\b|\.Tools\b")
"""The variable in Jinja, as transformers has it, and in Ollama's templates of Go (its docs/template.md, 2026-11)."""


async def check_chat_template(context: ProbeContext) -> ProbeFinding:
    """The name tells the format too, where the template does not."""
    place = context.provider.template if context.provider else ""
    template = await context.server_info.get(place, context.model) if place else None
    jinja = template if template and "{%" in template else ""
    detected = detect_format(context.model, chat_template=jinja)
    facts = {"format": detected.format.name, "by": detected.by}
    if template is None:
        return ProbeFinding(
            "chat template", "unknown", f"not told; format by the model's name: {detected.format.name}", facts
        )
    knows = bool(_TOOLS_VARIABLE.search(template))
    summary = f"it has a place for tools; format {detected.format.name}" if knows else "it has no place for tools"
    return ProbeFinding("chat template", "yes" if knows else "no", summary, facts)


async def check_completions(context: ProbeContext) -> ProbeFinding:
    """A few words to go on from."""
    body = {"model": context.model, "prompt": "The sky is", "max_tokens": 4, "temperature": 0}
    data, error = await context.client.post(completions.PATH, body)
    if error is not None:
        status = getattr(error, "status", None)
        return ProbeFinding("completions", "no" if status in (400, 404, 405, 501) else "unknown", error.message)
    text = next(values_at(decode_or_none(data), ["choices", "0", "text"], ""), None)
    if not isinstance(text, str):
        return ProbeFinding("completions", "no", "the answer has no text")
    return ProbeFinding("completions", "yes", f'"The sky is" goes on with {quote_line(text)}')
