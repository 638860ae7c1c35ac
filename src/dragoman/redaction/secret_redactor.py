"""Removes secrets from an upstream server's errors: the API key, also in encoded forms.

Servers and proxies put the `Authorization` that they reject into their errors: as it is, in JSON, in a URL, in base64
or in HTML. All of these are replaced, and so is anything that looks like a key of any vendor (redaction/redact.py).
"""

import base64
import html
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from dragoman.core.errors import DragomanError, UpstreamError
from dragoman.redaction.redact import Redactor

_REPLACEMENT: Final = "…"
_MIN_PASSWORD_CHARS: Final = 4
"""Shorter passwords are not searched for, as they occur in too many ordinary words."""


class SecretRedactor:
    """Removes the secrets of one server: its key, and the user and password in its URL."""

    def __init__(self, key: str, url: str) -> None:
        self._forms = sorted(
            {form for each in _secrets(key, url) for form in _encoded_forms(each)}, key=len, reverse=True
        )
        self._others = Redactor()

    def hide(self, text: str) -> str:
        """Returns the text without the secrets, in any of their encoded forms."""
        for form in self._forms:
            text = text.replace(form, _REPLACEMENT)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        """Returns a body without the secrets."""
        for form in self._forms:
            data = data.replace(form.encode(), _REPLACEMENT.encode())
        return data

    def clean_error(self, error: DragomanError) -> DragomanError:
        """Removes the secrets, and other keys, from the error's message, and returns the error."""
        if isinstance(error, UpstreamError):
            error.message = self._others.redact_text(self.hide(error.message))
            error.args = (error.message,)
        return error


def _secrets(key: str, url: str) -> Iterator[str]:
    if key:
        yield from (key, f"{key}:", f":{key}")
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if at:
        yield unquote(login)
        if len(unquote(password)) >= _MIN_PASSWORD_CHARS or not colon:
            yield unquote(password) if colon else unquote(user)


def _encoded_forms(secret: str) -> Iterator[str]:
    """Yields the secret and its encodings."""
    data = secret.encode("utf-8", "surrogatepass")
    yield secret
    for ascii in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii)[1:-1]
        yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii)[1:-1])
    yield from (quote(data, safe=""), quote(data), quote_plus(data), html.escape(secret), repr(secret)[1:-1])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        coded = encode(data).decode()
        yield from (coded, coded.rstrip("="), quote(coded, safe=""))
