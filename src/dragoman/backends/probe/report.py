"""Results of a probe, for people and as JSON."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Verdict: TypeAlias = Literal["yes", "partly", "no", "unknown"]


class ProbeFinding(Struct, frozen=True):
    """The result of one check."""

    what: str
    """Name of the check, `tool calls`."""
    verdict: Verdict
    """`unknown`: the responses do not tell, or the check did not run; `text` gives the reason."""
    text: str
    """The result for people."""
    facts: dict[str, Any] = {}
    """The result for programs."""


class Recommendation(Struct, frozen=True):
    """The recommended way to request a model of a server."""

    tool_mode: Literal["native", "parse", "prompt"]
    why: str
    call_format: str = ""
    """The format in which the model wrote calls; empty: by the model's name."""
    constrain: tuple[str, ...] = ()
    """Constraint methods that work, best first; empty: none, or not checked."""


class ProbeReport(Struct, frozen=True):
    """The whole result of a probe."""

    url: str
    api: str
    model: str
    provider: str
    """A row of catalog/servers.toml; empty: not known."""
    title: str
    """Name of the provider, for people."""
    version: str
    fingerprint: str
    """Changes when the server, its version, the model behind the name or its template changes."""
    models: tuple[str, ...]
    findings: tuple[ProbeFinding, ...]
    choice: Recommendation
    seconds: float

    def found(self, what: str) -> ProbeFinding:
        """Returns the finding of this check."""
        return next(finding for finding in self.findings if finding.what == what)
