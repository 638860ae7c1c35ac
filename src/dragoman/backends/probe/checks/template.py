"""Whether the chat template, where the server tells it, knows tools; and which format it writes calls in."""

import re
from typing import Final

from dragoman.backends.probe.context import Subject
from dragoman.backends.probe.report import Finding
from dragoman.identify import detect_format

_TOOLS: Final = re.compile(r"\btools\b|\.Tools\b")
"""The variable in Jinja, as transformers has it, and in Ollama's templates of Go (its docs/template.md, 2026-11)."""


async def measure(subject: Subject) -> Finding:
    """The name tells the format too, where the template does not."""
    place = subject.kind.template if subject.kind else ""
    told = await subject.telling.told(place, subject.model) if place else None
    jinja = told if told and "{%" in told else ""
    found = detect_format(subject.model, chat_template=jinja)
    facts = {"format": found.format.name, "by": found.by}
    if told is None:
        return Finding("chat template", "unknown", f"not told; format by the model's name: {found.format.name}", facts)
    knows = bool(_TOOLS.search(told))
    words = f"it has a place for tools; format {found.format.name}" if knows else "it has no place for tools"
    return Finding("chat template", "yes" if knows else "no", words, facts)
