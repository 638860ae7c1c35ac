"""Host names of URLs and addresses, and of the Host and Origin headers of requests."""

import re
from functools import lru_cache
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?\]"
_HOST = re.compile(rf"({_NAME})(?::[0-9]{{1,5}})?")
_ORIGIN = re.compile(rf"https?://({_NAME})(?::[0-9]{{1,5}})?", re.IGNORECASE)


def host_name(text: str) -> str:
    """Returns the host name of a URL or an address, with or without port: `https://[::1]:80` → `::1`; "" if none."""
    if text.count(":") > 1 and "[" not in text and "/" not in text:
        return text.lower()
    try:
        return urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def parse_host_header(value: str) -> str:
    """Returns the host name of a Host header, as `host_name`; "" if it is not valid by RFC 9110."""
    return _without_port(_HOST.fullmatch(value))


def parse_origin_header(value: str) -> str:
    """Returns the host name of an Origin header of a web page; "" for any other value, including `null`."""
    return _without_port(_ORIGIN.fullmatch(value))


def _without_port(match: "re.Match[str] | None") -> str:
    return match[1].strip("[]").removesuffix(".").lower() if match else ""
