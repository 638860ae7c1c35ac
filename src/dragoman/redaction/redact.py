"""Removes secrets from data that is stored: known ones, and text that looks like one.

    Bearer sk-live-0123456789abcdef   →   Bearer ***********************

The number of characters does not change, so text in pieces can be redacted as one text and split again, and JSON stays
valid.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from dragoman.redaction.anonymize import map_strings
from dragoman.redaction.opaque_text import OPAQUE_PREFIX, opaque, read_opaque

HIDDEN: Final = "[hidden]"
"""Replaces the value of a header."""
_MIN_SECRET_CHARS: Final = 6
"""Minimum length of a known secret: a shorter one occurs in too many words."""
_VARIABLES: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|CUSTOM_HEADERS", re.IGNORECASE)
_MIN_VARIABLE_CHARS: Final = 12
"""Shorter values, as in `MAX_TOKENS=8192`, are not keys."""
_NAMES: Final = re.compile(r"auth(?!ors?(?![a-z]))|key|token|secret|passw|cookie|credential", re.IGNORECASE)
_BEFORE: Final = rb"(?:(?<![\w-])|(?<=\\[nrtbf]))"
"""The beginning of a word: after a character that is not part of one, or after a line end as JSON writes it."""
_KEYS: Final = (b"api_key", b"api-key", b"apikey", b"access_key", b"access-key", b"accesskey", b"private_key")
_PASSWORDS: Final = (b"password", b"passwd", b"passphrase")
_TOKENS: Final = (b"token", b"secret", b"credential", b"_auth", b"authorization")
_NAMED: Final = (
    rb"(?i:(?:api|access|private)[_-]?key(?:[_-]?id)?|passw(?:or)?d[\w-]{0,20}|passphrase|token|credentials?|_auth"
    rb"|secret(?:[_-]?(?:access|key|token|value))*|authorization|(?:set-)?cookie)"
)
_IS: Final = rb"\s{0,9}(?:=>|:=|[:=])[ \t]{0,9}"
_NO_WORD: Final = (
    rb"(?![<{\[(%$&]|(?i:string|number|boolean|integer|object|unknown|undefined|required|optional)(?![\w-]))"
)
_NO_VALUE: Final = _NO_WORD + rb"(?!\d{1,12}(?:\.\d{0,9})?(?![\w.-]))"
"""Text in place of a secret that is not one: `<|eos|>`, `$TOKEN`, a type, and, except for passwords, a number."""
_QUOTED: Final = re.compile(
    _NAMED + rb"\\{0,9}[\"']?" + _IS + rb"(?P<open>\\{0,9})(?:(?P<double>\")|')" + _NO_WORD + rb"((?:"
    rb"[^\"'\\\r\n]"
    rb"|(?(double)'|(?!))"
    rb"|(?:(?P=open)\\){2}"  # a backslash, as it is written in a string nested this deep
    rb"|(?P=open)(?P=open)\\[\"']"  # a quote, as it is written in a string nested this deep
    rb"|\\++[^\"'\\]"
    rb"){6,10000}+)"
)
"""The third group is the text up to the closing quote, which has as many backslashes as the opening one."""
_WORD: Final = rb"[^\s\"'\\,;(){}\[\]<>&|`]{6,}+"
_PATTERNS: Final[tuple[tuple[re.Pattern[bytes], tuple[bytes, ...]], ...]] = (
    (re.compile(_BEFORE + rb"(?i:bearer|basic|apikey)\s{1,9}([\w.~+/=-]{8,})"), (b"bearer", b"basic", b"apikey")),
    (
        re.compile(_BEFORE + rb"([\w-]{19,}+)"),
        (
            *(b"sk-", b"sk_", b"pk-", b"pk_", b"rk_", b"ghp_", b"gho_", b"ghs_", b"github_pat_", b"glpat-", b"hf_"),
            *(b"xoxa-", b"xoxb-", b"xoxp-", b"xoxr-", b"xoxs-", b"gsk_", b"xai-", b"nvapi-"),
        ),
    ),
    (
        re.compile(_BEFORE + rb"(AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+)"),
        (b"akia", b"aiza", b"eyj"),
    ),
    (
        re.compile(
            rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----((?:[^\"'\\-]|\\++(?![\"'])|-(?!----END))*+)"
        ),
        (b"-----begin",),
    ),
    (re.compile(rb":(?:\\?/){2}[^\s/?#:@\"'\\<>]{0,200}+:([^\s/?#\"'\\<>]{1,400})@"), (b"://", b":\\/\\/")),
    (_QUOTED, (*_KEYS, *_PASSWORDS, *_TOKENS, b"cookie")),
    (re.compile(rb"(?i:passw(?:or)?d[\w-]{0,20}|passphrase)" + _IS + _NO_WORD + rb"([^\s\"'\\]{6,}+)"), _PASSWORDS),
    (re.compile(_NAMED + _IS + _NO_VALUE + rb"(?:(" + _WORD + rb")(?![(\[])|" + _WORD + rb")"), _KEYS),
    (
        re.compile(
            _NAMED + _IS + _NO_VALUE + rb"(?=[^\s\"'\\.]{20}|[^\s\"'\\\d]{0,200}+\d)"
            rb"(?:(" + _WORD + rb")(?![(\[])|" + _WORD + rb")"
        ),
        _TOKENS,
    ),
    (
        re.compile(
            rb"(?i:authorization)" + _IS + _NO_VALUE + rb"(?:(?i:bearer|basic|token|apikey|digest)[ ]{1,9})?"
            rb"((?:[\w-]{1,20}+[ ]{1,9})?[^\s\"'\\]{6,})"
        ),
        (b"authorization",),
    ),
    (re.compile(rb"(?i:cookie): {0,9}([^\s\"'\\;]{6,}+(?:; {0,3}[^\s\"'\\;]++)*+)"), (b"cookie",)),
    (re.compile(rb"(?:KEY|TOKEN|SECRET|PASSWORD)=([^\s\"'\\]{6,}+)"), (b"key=", b"token=", b"secret=", b"password=")),
)
"""Patterns of secrets, and the lower-case texts with which a match begins, which are found much faster. After vendors'
keys and programs' names for them, 2026-11: docs of OpenAI, Anthropic, GitHub, GitLab, Slack, Hugging Face, Groq, xAI,
NVIDIA, AWS, Google; RFC 3986, RFC 6750, RFC 7519, RFC 7468. The steps of a failed match are bounded by the pattern, and
the search goes on after a match, so hostile text does not take longer than other text."""
_OPAQUE: Final = re.compile(re.escape(OPAQUE_PREFIX.encode()) + rb"[\w=-]++")
_HEADERS: Final = re.compile(
    rb"headers\\{0,9}\":\s{0,9}\{(?![^{}]{0,5000}\"(?:type|\$ref)\\{0,9}\")([^{}]{0,10000}+)\}"
)
"""The HTTP headers that a request declares for an MCP server; not a property `headers` of a JSON Schema."""
_HEADER_VALUE: Final = re.compile(rb":\s{0,9}\\{0,9}\"([^\"\\]{6,})")
_ESCAPE: Final = re.compile(rb"(?<!\\)\\{1,15}(?:/|u00([2-7][0-9a-fA-F]))")
"""A character that JSON can also write without an escape."""
_STARS: Final = bytes(ord("*") if code < 128 else code for code in range(256))


def is_secret(name: str) -> bool:
    """Returns whether a header with this name can contain a secret."""
    return bool(_NAMES.search(name))


def secret_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns the values of environment variables whose names are those of keys, without paths."""
    named = (value for name, value in environ.items() if _VARIABLES.search(name))
    return [value for value in named if len(value) >= _MIN_VARIABLE_CHARS and not value.startswith(("/", "~"))]


def redact_headers(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers with secret values replaced by `HIDDEN`."""
    return {name: HIDDEN if is_secret(name) else value for name, value in fields.items()}


class Redactor:
    """Removes secrets from texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: known secrets; those of fewer than 6 characters are ignored."""
        self._known = [secret.encode() for secret in secrets if len(secret) >= _MIN_SECRET_CHARS]

    def redact_text(self, text: str) -> str:
        """Returns the text with secrets replaced by `*`, with the same length."""
        return self.redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def redact_bytes(self, data: bytes) -> bytes:
        """Returns the bytes with secrets replaced by `*`, with the same length."""
        redacted = bytearray(_OPAQUE.sub(self._redact_opaque, data) if OPAQUE_PREFIX.encode() in data else data)
        plain, place = _unescaped(data)
        for secret in self._find_secrets(plain):
            start, end = map(place, secret)
            redacted[start:end] = redacted[start:end].translate(_STARS)
        return bytes(redacted)

    def _redact_opaque(self, match: re.Match[bytes]) -> bytes:
        text = read_opaque(match[0].decode())
        return match[0] if text is None else opaque(self.redact_text(text)).encode()

    def _find_secrets(self, data: bytes) -> Iterator[tuple[int, int]]:
        for secret in self._known:
            yield from ((at, at + len(secret)) for at in _find_all(data, secret))
        if b"mcp" in data:
            for headers in _HEADERS.finditer(data):
                yield from (value.span(1) for value in _HEADER_VALUE.finditer(data, *headers.span(1)))
        small = data.lower()
        searches = ((pattern, beginning) for pattern, beginnings in _PATTERNS for beginning in beginnings)
        for pattern, beginning in searches:
            yield from _matches(pattern, beginning, data, small)

    def redact_stream(self, data: bytes) -> bytes:
        """Returns JSON in pieces with secrets replaced, also those that continue from one string to the next."""
        text = map_strings(data.decode("utf-8", "surrogateescape"), self._redact_string)
        return self.redact_bytes(text.encode("utf-8", "surrogateescape"))

    def _redact_string(self, text: str) -> str:
        return self.redact_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _find_all(data: bytes, secret: bytes) -> Iterator[int]:
    """The positions of `secret`, without overlaps."""
    at = data.find(secret)
    while at >= 0:
        yield at
        at = data.find(secret, at + len(secret))


def _matches(pattern: re.Pattern[bytes], beginning: bytes, data: bytes, small: bytes) -> Iterator[tuple[int, int]]:
    """The secrets in matches of the pattern, without overlaps."""
    group = pattern.groups
    at = small.find(beginning)
    while at >= 0:
        match = pattern.match(data, at)
        if match and match[group]:
            yield match.span(group)
        at = small.find(beginning, max(match.end() if match else 0, at + len(beginning)))


def _unescaped(data: bytes) -> tuple[bytes, Callable[[int], int]]:
    r"""The data with `\/` and `\u002b` decoded, and a function from positions in that to positions in the data."""
    pieces, done = list[bytes](), 0
    places, dropped_before = [0], [0]
    for match in _ESCAPE.finditer(data):
        char = bytes.fromhex(match[1].decode()) if match[1] else b"/"
        if char in b"\"'\\":
            continue
        pieces += [data[done : match.start()], char]
        done = match.end()
        dropped_before.append(dropped_before[-1] + len(match[0]) - 1)
        places.append(done - dropped_before[-1])
    plain = b"".join([*pieces, data[done:]])
    return plain, lambda at: at + dropped_before[bisect_right(places, at) - 1]
