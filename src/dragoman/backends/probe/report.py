"""What was found out about a server, and how it is best asked: values, for people and for JSON."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Verdict: TypeAlias = Literal["yes", "partly", "no", "unknown"]


class Finding(Struct, frozen=True):
    """The answer to one question about a server."""

    what: str
    """The question, `tool calls`."""
    verdict: Verdict
    """`unknown`: the server's answers do not tell, or it was not asked, and `words` say why."""
    words: str
    """For people."""
    facts: dict[str, Any] = {}
    """For programs."""


class Choice(Struct, frozen=True):
    """How a model of a server is to be asked."""

    mode: Literal["native", "parse", "inject"]
    why: str
    format: str = ""
    """What the model writes calls in, where that was seen; empty: by its name."""
    constrain: tuple[str, ...] = ()
    """Ways to hold the model to a grammar that were seen to work, best first; empty: none, or not measured."""


class Report(Struct, frozen=True):
    """All of it."""

    url: str
    api: str
    model: str
    kind: str
    """A row of catalog/servers.toml; empty: none fits."""
    title: str
    """What it is, for people."""
    version: str
    fingerprint: str
    """Changes when the server, its version, the model behind the name or its template does."""
    models: tuple[str, ...]
    findings: tuple[Finding, ...]
    choice: Choice
    seconds: float

    def found(self, what: str) -> Finding:
        """The finding of this name."""
        return next(finding for finding in self.findings if finding.what == what)
