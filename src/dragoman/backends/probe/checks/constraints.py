"""Which ways to hold the model to a grammar are offered: one that lets through a word that nobody would say."""

import re

import msgspec

from dragoman.backends.probe.context import GREETING, Subject
from dragoman.backends.probe.report import Finding
from dragoman.catalog import servers
from dragoman.core.errors import UpstreamError

WHAT = "constrained"
_TOKENS = 24


async def measure(subject: Subject) -> Finding:
    """Those of its kind; all of them where that is not known."""
    ways = [way for way in servers.constraints() if subject.kind is None or way.name in subject.kind.constrain]
    if not ways:
        return Finding(WHAT, "unknown", "not asked: its kind offers none", {})
    facts: dict[str, str] = {}
    for way in ways:
        asker = subject.asker
        extra = msgspec.json.decode(way.body, type=dict[str, msgspec.Raw])
        heard = await asker.ask(asker.request(GREETING, tokens=_TOKENS, extra=extra))
        if heard.reply is not None:
            facts[way.name] = "yes" if re.search(way.says, heard.text.strip()) else "ignored"
        else:
            facts[way.name] = "refused" if isinstance(heard.error, UpstreamError) else "no answer"
    works = [name for name, so in facts.items() if so == "yes"]
    told = ", ".join(f"{name} {so}" for name, so in facts.items())
    if set(facts.values()) == {"no answer"}:
        return Finding(WHAT, "unknown", told, facts)
    return Finding(WHAT, "yes" if works else "no", told, facts)
