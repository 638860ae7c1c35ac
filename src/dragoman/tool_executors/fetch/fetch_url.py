"""Parses the URL of a page strictly, so that no two parsers can read different hosts in it.

    "HTTPS://Example.com:443/a b"   refused: a space
    "https://Example.com/a?b#c"  →  FetchUrl("https", "example.com", 443, "/a?b")

A host is an ordinary name, an IPv4 address as four decimal numbers, or an IPv6 address in brackets. All else that some
resolvers or browsers also accept is refused: `127.1`, `0x7f.0.0.1`, `2130706433`, full-width digits, percent-encoding.

Source: https://url.spec.whatwg.org/#host-parsing, https://www.rfc-editor.org/rfc/rfc3986 (2026-11).
"""

import ipaddress
import re
import unicodedata
from typing import Final, NamedTuple
from urllib.parse import urljoin

from dragoman.vendor_tools.tool import ToolErrorCode

MAX_URL_CHARS: Final = 2048
_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"(https?)://([^/?#]+)(/[^?#]*)?(\?[^#]*)?(?:#.*)?", re.IGNORECASE | re.ASCII)
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::([0-9]{1,5})?)?")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of a host that other parsers take for an IPv4 address."""
_MAX_HOST_CHARS: Final = 253


class RefusedUrlError(Exception):
    """A URL, or an address of its host, that is not fetched."""

    def __init__(self, message: str, code: ToolErrorCode = "url_not_allowed", text: str = "") -> None:
        """
        Args:
            message: Why, for the log.
            code: Why, for the client and the model.
            text: What the model reads instead of the usual text of the code, if not empty.
        """
        super().__init__(message)
        self.code: ToolErrorCode = code
        self.text = text


class FetchUrl(NamedTuple):
    """A URL in its canonical form."""

    scheme: str
    host: str
    """In ASCII and lower case; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def origin(self) -> str:
        """Scheme, host and port, as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def __str__(self) -> str:
        """Returns the URL, without a fragment."""
        return self.origin + self.target


def parse_fetch_url(text: str) -> FetchUrl:
    """Returns the URL.

    Raises:
        RefusedUrlError: It is not a URL of HTTP, or not an unambiguous one.
    """
    if len(text) > MAX_URL_CHARS:
        raise RefusedUrlError(f"a URL of {len(text)} characters", "url_too_long")
    if not text.isprintable() or " " in text or "\\" in text:
        raise RefusedUrlError("a URL with white space, control characters or backslashes", "invalid_tool_input")
    if (match := _URL.fullmatch(text)) is None:
        raise RefusedUrlError("a URL that does not begin with http:// or https:// and a host", "invalid_tool_input")
    scheme, authority, path, query = match[1].lower(), match[2], match[3] or "/", match[4] or ""
    if "@" in authority or "%" in authority:
        raise RefusedUrlError("a URL with a user name or with % in its host")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise RefusedUrlError("a URL with an invalid host or port")
    return FetchUrl(scheme, _host(parts[1]), int(parts[2]) if parts[2] else _PORTS[scheme], path + query)


def redirect_url(at: FetchUrl, location: str) -> FetchUrl:
    """Returns the URL of a redirect.

    Args:
        at: The URL that redirects.
        location: The value of its header.

    Raises:
        RefusedUrlError: See `parse_fetch_url`.
    """
    if not location.isprintable() or "\\" in location or len(location) > MAX_URL_CHARS:
        raise RefusedUrlError("a redirect with control characters or backslashes, or a very long one")
    try:
        joined = urljoin(str(at), location.strip(" "))
    except ValueError:
        raise RefusedUrlError("a redirect to an invalid URL") from None
    return parse_fetch_url(joined.replace(" ", "%20"))


def _host(written: str) -> str:
    if written.startswith("["):
        try:
            return ipaddress.IPv6Address(written[1:-1]).compressed
        except ValueError:
            raise RefusedUrlError("a URL with an invalid IPv6 address") from None
    host = _ascii(written).lower()
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return ipaddress.IPv4Address(host).compressed
        except ValueError:
            raise RefusedUrlError("a URL with an IPv4 address that is not four decimal numbers") from None
    if len(host) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise RefusedUrlError("a URL with an invalid host name")
    return host


def _ascii(host: str) -> str:
    """Returns the host in ASCII; characters that Unicode maps to others, such as full-width digits, are refused."""
    if host.isascii():
        return host
    if unicodedata.normalize("NFKC", host).lower() != host.lower():
        raise RefusedUrlError("a URL whose host has compatibility characters")
    try:
        written = host.encode("idna").decode()
        returned = written.encode().decode("idna")
    except UnicodeError:
        raise RefusedUrlError("a URL with an invalid host name") from None
    if returned != host.lower():  # such as a soft hyphen, which is dropped
        raise RefusedUrlError("a URL whose host has characters that are mapped to others")
    return written
