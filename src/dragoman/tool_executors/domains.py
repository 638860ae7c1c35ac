"""Decides by domain names whether a URL may be used."""

import posixpath
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from dragoman.vendor_tools.tool import VendorTool


def is_admitted(url: str, tool: VendorTool) -> bool:
    """Returns whether the tool's options admit this URL."""
    if is_below(url, tool.blocked_domains):
        return False
    return not tool.allowed_domains or is_below(url, tool.allowed_domains)


def is_below(url: str, domains: Iterable[str]) -> bool:
    """Returns whether the URL is of one of these domains, `example.com` or `example.com/path`."""
    try:
        at = urlsplit(url)
        host = (at.hostname or "").lower()
    except ValueError:
        return False
    page = _path(at.path)
    for domain in domains:
        name, _, path = domain.lower().partition("/")
        name = _ascii(name)
        is_host = bool(name) and (host == name or host.endswith(f".{name}"))
        if is_host and page.startswith(f"/{path}" if path else ""):
            return True
    return False


def _path(path: str) -> str:
    """Returns the path as a server reads it: decoded, without `..`."""
    decoded = unquote(path)
    return "/" + posixpath.normpath(f"/{decoded}").lstrip("/").lower() + ("/" if decoded.endswith("/") else "")


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name
