"""Secrets out of what is kept: those that are known, and what looks like one.

    Bearer sk-live-0123456789abcdef   →   Bearer ***********************

As many characters stay as there were, so that what is cut into pieces can be cleaned as one text and cut again, and
JSON stays JSON.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
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
_LOOKS: Final[tuple[tuple[re.Pattern[bytes], tuple[bytes, ...]], ...]] = (
    (re.compile(rb"(?<!\w)(?i:bearer|basic)\s{1,9}([\w.~+/=-]{8,})"), (b"bearer", b"basic")),
    (
        re.compile(rb"(?<!\w)(\w+[-_][\w-]{16,})"),
        (
            *(b"sk-", b"sk_", b"pk-", b"pk_", b"rk_", b"ghp_", b"gho_", b"ghs_", b"github_pat_", b"glpat-", b"hf_"),
            *(b"xoxa-", b"xoxb-", b"xoxp-", b"xoxr-", b"xoxs-", b"gsk_", b"xai-", b"nvapi-"),
        ),
    ),
    (
        re.compile(rb"(?<![\w-])(AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"),
        (b"akia", b"aiza", b"eyj"),
    ),
    (re.compile(rb"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{1,20000}-----END)"), (b"-----begin",)),
    (
        re.compile(rb"[\w-]{5,13}\\?[\"']?\s{0,9}[:=]\s{0,9}\\?[\"']([^\"'\\\s{}\[\]]{6,})"),
        (
            *(b"api_key", b"api-key", b"apikey", b"authorization", b"_token", b"-token", b"secret"),
            *(b"password", b"passwd", b"cookie"),
        ),
    ),
    (re.compile(rb"(?:KEY|TOKEN|SECRET|PASSWORD)=([^\s\"'\\]{6,})"), (b"key=", b"token=", b"secret=", b"password=")),
)
"""What looks like a secret, and the small letters that it begins with, which are found much faster. As vendors write
their keys, and as programs name them, 2026-11: docs of OpenAI, Anthropic, GitHub, GitLab, Slack, Hugging Face, Groq,
xAI, NVIDIA, AWS, Google; RFC 6750, RFC 7519, RFC 7468."""
_STARS: Final = bytes(ord("*") if code < 128 else code for code in range(256))


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
        self._known = [secret.encode() for secret in secrets if len(secret) >= _SHORTEST]

    def text(self, text: str) -> str:
        """The text without secrets, as long as it was."""
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Likewise, of bytes."""
        made = bytearray(data)
        for start, end in self._found(data):
            made[start:end] = data[start:end].translate(_STARS)
        return bytes(made)

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        for secret in self._known:
            yield from ((at, at + len(secret)) for at in _places(data, secret))
        small = data.lower()
        looked_for = ((pattern, beginning) for pattern, beginnings in _LOOKS for beginning in beginnings)
        for pattern, beginning in looked_for:
            matches = (pattern.match(data, at) for at in _places(small, beginning))
            yield from (found.span(1) for found in matches if found)

    def stream(self, data: bytes) -> bytes:
        """Likewise, of JSON in pieces, in whose strings a secret may go on from one to the next."""
        text = changed(data.decode("utf-8", "surrogateescape"), self._inside)
        return self.data(text.encode("utf-8", "surrogateescape"))

    def _inside(self, text: str) -> str:
        return self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _places(data: bytes, wanted: bytes) -> Iterator[int]:
    """Where it stands, once for those that lie within each other."""
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + len(wanted))
