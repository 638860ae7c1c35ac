"""Recognizes secrets in a command's arguments and in URLs, by their names and by what they look like.

--api-key sk-1   --api-key=sk-1   API_KEY=sk-1   "Authorization: Bearer sk-1"   https://me:pw@host/   https://host/?key=1
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from dragoman.redaction.redact import Redactor, is_secret

_NAMED: Final = re.compile(r"-{0,2}([\w.-]+)\s*[=:]\s*(\S.*)", re.DOTALL)
_REDACTOR: Final = Redactor()


def has_secret_argument(arguments: Sequence[str]) -> bool:
    """Returns whether one of the arguments may be a secret: better one too many than one too few."""
    return any(map(_is_secret_argument, ("", *arguments), arguments))


def has_secret_url(text: str) -> bool:
    """Returns whether the text is a URL with a user name or password, or with a query value of a secret's name."""
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return "@" in url.netloc or any(is_secret(name) for name, _ in parse_qsl(url.query))


def _is_secret_argument(before: str, argument: str) -> bool:
    if before.startswith("-") and "=" not in before and is_secret(before) and not argument.startswith("-"):
        return True
    while named := _NAMED.fullmatch(argument):
        if is_secret(named[1]):
            return True
        argument = named[2]
    return has_secret_url(argument) or _REDACTOR.redact_text(argument) != argument
