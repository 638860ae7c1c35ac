"""Description of an API's stream for forwarding it without parsing each event; used by wire/passthrough.py."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StreamPassthrough:
    """How to forward one API's SSE stream without parsing each event."""

    end_pattern: re.Pattern[bytes]
    """Matches an event that ends a response, the API's own error included; matched at the start of an event."""
    end_event: bytes = b""
    """The event to append if it is the only one missing at the end; empty: the last event contains more than that."""
    model_container: str = ""
    """The field of an event that contains the response, and so the model's name; empty: the event itself."""
    usage_request: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Fields that a streaming request must have so that the server reports token usage."""
    usage_only_markers: tuple[bytes, ...] = ()
    """Markers of events that exist only to report usage; they are removed for clients that did not request usage."""
    rewrite_error: Callable[[bytes, Sequence[bytes]], bytes] | None = None
    """Rewrites an event of the gateway to fit after the server's first and last events; None: written unchanged."""
