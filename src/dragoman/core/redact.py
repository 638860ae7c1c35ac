"""Secrets out of what is kept: those that are known, and what looks like one.

    Bearer sk-live-0123456789abcdef   →   Bearer ***********************

As many characters stay as there were, so that what is cut into pieces can be cleaned as one text and cut again, and
JSON stays JSON.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from dragoman.core.filler import changed

HIDDEN: Final = "[hidden]"
"""In place of a header's value."""
_SHORTEST: Final = 6
"""Characters of a known secret that is looked for: a shorter one stands in too many words."""
_VARIABLES: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|CUSTOM_HEADERS", re.IGNORECASE)
_VARIABLE_CHARS: Final = 12
"""Those that are shorter, `MAX_TOKENS=8192`, are no keys."""
_NAMES: Final = re.compile(r"auth|key|token|secret|passw|cookie|credential", re.IGNORECASE)
_LOOKS: Final = re.compile(
    r"(?i:\b(?:bearer|basic)\s+)(?P<a>[\w.~+/=-]{8,})"
    r"|(?P<b>\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|hf|gsk|xai|nvapi)[-_][\w-]{16,})"
    r"|(?P<c>\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
    r"|(?P<d>-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END)"
    r"|(?i:(?:api[_-]?key|authorization|[_-]token|secret|passw(?:or)?d|cookie)\\?[\"']?\s*[:=]\s*\\?[\"'])"
    r"(?P<e>[^\"'\\\s{}\[\]]{6,})"
    r"|\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)=(?P<f>[^\s\"'\\]{6,})",
    re.DOTALL,
)
"""As vendors write their keys, and as programs name them, 2026-11: docs of OpenAI, Anthropic, GitHub, GitLab, Slack,
Hugging Face, Groq, xAI, NVIDIA, AWS, Google; RFC 6750, RFC 7519, RFC 7468."""


def is_secret(name: str) -> bool:
    """Whether a header of this name may hold a secret."""
    return bool(_NAMES.search(name))


def secret_variables(environ: Mapping[str, str]) -> list[str]:
    """The values of variables that are named as keys are, but for paths."""
    named = (value for name, value in environ.items() if _VARIABLES.search(name))
    return [value for value in named if len(value) >= _VARIABLE_CHARS and not value.startswith(("/", "~"))]


def headers(fields: Mapping[str, str]) -> dict[str, str]:
    """Headers without what nobody else may see."""
    return {name: HIDDEN if is_secret(name) else value for name, value in fields.items()}


class Redactor:
    """Takes secrets out of texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: those that are known."""
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def text(self, text: str) -> str:
        """The text without secrets, as long as it was."""
        if self._known:
            text = self._known.sub(lambda found: "*" * len(found[0]), text)
        return _LOOKS.sub(_starred, text)

    def data(self, data: bytes) -> bytes:
        """Likewise; whatever is no UTF-8 stays."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def stream(self, data: bytes) -> bytes:
        """Likewise, of JSON in pieces, in whose strings a secret may go on from one to the next."""
        text = changed(data.decode("utf-8", "surrogateescape"), self.text)
        return self.text(text).encode("utf-8", "surrogateescape")


def _starred(found: re.Match[str]) -> str:
    group = next(name for name, value in found.groupdict().items() if value)
    start, end = (place - found.start() for place in found.span(group))
    return found[0][:start] + "".join("*" if c.isascii() else c for c in found[0][start:end]) + found[0][end:]
