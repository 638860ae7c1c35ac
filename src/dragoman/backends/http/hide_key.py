"""What a client must not read in an upstream server's error: the key it is asked with, also where it repeats that.

Servers and proxies put the `Authorization` that they refuse into their errors, as it is, in JSON, in a URL, in base64
or in HTML. All of these are hidden, as is whatever looks like a key of any vendor (redaction/redact.py).
"""

import base64
import html
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from dragoman.core.errors import DragomanError, UpstreamError
from dragoman.redaction.redact import Redactor

_HIDDEN: Final = "…"
_SHORTEST: Final = 4
"""Characters of a password that is looked for: a shorter one stands in too many words."""


class Secrets:
    """The secrets of one server: its key, and user and password in its URL."""

    def __init__(self, key: str, url: str) -> None:
        self._forms = sorted({form for each in _secrets(key, url) for form in _forms(each)}, key=len, reverse=True)
        self._others = Redactor()

    def hidden(self, text: str) -> str:
        """The text without the secrets, in any of their forms."""
        for form in self._forms:
            text = text.replace(form, _HIDDEN)
        return text

    def hidden_data(self, data: bytes) -> bytes:
        """The bytes of a body without them."""
        for form in self._forms:
            data = data.replace(form.encode(), _HIDDEN.encode())
        return data

    def clean(self, error: DragomanError) -> DragomanError:
        """The error, its message without them and without other keys."""
        if isinstance(error, UpstreamError):
            error.message = self._others.text(self.hidden(error.message))
            error.args = (error.message,)
        return error


def _secrets(key: str, url: str) -> Iterator[str]:
    if key:
        yield from (key, f"{key}:", f":{key}")
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if at:
        yield unquote(login)
        if len(unquote(password)) >= _SHORTEST or not colon:
            yield unquote(password) if colon else unquote(user)


def _forms(secret: str) -> Iterator[str]:
    """The secret, and what encodings make of it."""
    data = secret.encode("utf-8", "surrogatepass")
    yield secret
    for ascii in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii)[1:-1]
        yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii)[1:-1])
    yield from (quote(data, safe=""), quote(data), quote_plus(data), html.escape(secret), repr(secret)[1:-1])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        coded = encode(data).decode()
        yield from (coded, coded.rstrip("="), quote(coded, safe=""))
