"""Selects upstream response headers for the client: whether to retry, remaining rate limits, request id, warnings.

    {"x-ratelimit-remaining-requests": "9", "request-id": "req_1", "server": "nginx"}
    →   {"x-ratelimit-remaining-requests": "9", "x-dragoman-upstream-request-id": "req_1"}

Source: https://developers.openai.com/api/docs/guides/rate-limits, https://docs.anthropic.com/en/api/rate-limits and
https://docs.anthropic.com/en/api/errors (`request-id`), and what the vendors' own clients read (`_base_client.py` of
openai-python and anthropic-sdk-python, `_should_retry`), 2026-11.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote

REQUEST_ID: Final = "x-dragoman-upstream-request-id"
SHOULD_RETRY: Final = "x-should-retry"
WARNINGS: Final = "x-dragoman-warnings"
"""Labels of warnings; an upstream server that sends them is a gateway itself."""

_LIMITS: Final = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit-")
_IDS: Final = ("request-id", "x-request-id", REQUEST_ID)
_VALUE: Final = re.compile(r"[\x20-\x7e]{1,256}")
_LABELS: Final = re.compile(r"[\x20-\x7e]{1,4096}")
_MAX_LIMIT_HEADERS: Final = 32
"""Maximum rate-limit headers; OpenAI has six, Anthropic eighteen."""


@lru_cache(maxsize=256)
def attempt_headers(upstream: str, model: str, attempts: int) -> dict[str, str]:
    """Returns the headers about the upstream server that answers; the dictionary must not be changed.

    Other characters than printable ASCII are percent-encoded.

    Args:
        upstream: The server's name in the settings.
        model: The server's own name of the model.
        attempts: How many requests the response took, including retries, failover and re-asks.
    """
    return {
        "x-dragoman-upstream": upstream if _VALUE.fullmatch(upstream) else quote(upstream)[:256],
        "x-dragoman-model": model if _VALUE.fullmatch(model) else quote(model)[:256],
        "x-dragoman-attempts": str(attempts),
    }


def client_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers for the client; names in `headers` are in lower case."""
    forwarded: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_LIMITS) and len(forwarded) < _MAX_LIMIT_HEADERS and _VALUE.fullmatch(value):
            forwarded[name] = value
    for name in _IDS:
        if name in headers:
            if _VALUE.fullmatch(headers[name]):
                forwarded[REQUEST_ID] = headers[name]
            break
    warnings = headers.get(WARNINGS, "")
    if warnings and _LABELS.fullmatch(warnings):
        forwarded[WARNINGS] = warnings
    return forwarded


def client_error_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers for the client of an error response; `retry-after` is not among them."""
    forwarded = client_headers(headers)
    if (should_retry := headers.get(SHOULD_RETRY, "").lower()) in ("true", "false"):
        forwarded[SHOULD_RETRY] = should_retry
    if headers.get("retry-after-ms", "").isdigit():
        forwarded["retry-after-ms"] = headers["retry-after-ms"][:9]
    return forwarded
