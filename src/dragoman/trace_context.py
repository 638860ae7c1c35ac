"""Selects the headers by which a client's trace continues at the upstream server.

    traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01      tracestate: vendor=value

Both are forwarded as they are; an invalid `traceparent` is dropped, and `tracestate` with it.

Source: https://www.w3.org/TR/trace-context/ (2021-11-23).
"""

import re
from collections.abc import Mapping
from typing import Final

_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{0,256})?"
)
_STATE: Final = re.compile(r"[\x20-\x7e\t]{1,8192}")
_NONE: Final[Mapping[str, str]] = {}


def read(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the valid trace headers of a client; names are in lower case."""
    parent = headers.get("traceparent")
    if parent is None:
        return {}
    match, state = _PARENT.fullmatch(parent), headers.get("tracestate", "")
    if match is None or (parent.startswith("00") and match[2]):
        return {}
    return {"traceparent": parent} | ({"tracestate": state} if _STATE.fullmatch(state) else {})


def trace_id(trace: Mapping[str, str]) -> str:
    """Returns the id of the trace in what `read` returned, or ""."""
    return trace.get("traceparent", "")[3:35]


def forwarded(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the trace headers among those that a request carries."""
    if "traceparent" not in headers:
        return _NONE
    return {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
