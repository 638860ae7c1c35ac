"""What one has to know of an API's stream to pass its bytes on unread; wire/passthrough.py does so."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StreamPassthrough:
    """Of one API."""

    ends: re.Pattern[bytes]
    """An event with which an answer is over, the API's own error too; tried at the beginning of an event."""
    end: bytes = b""
    """What to write in its place where all but that has come; empty: it says more than that."""
    within: str = ""
    """The member of an event that holds the reply, and with it the model's name; empty: the event itself."""
    wanted: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What a request for a stream must say for the server to tell how many tokens it took."""
    unasked: tuple[bytes, ...] = ()
    """One of these stands in an event that only comes for that; clients that have not asked for it are not told."""
    joined: Callable[[bytes, Sequence[bytes]], bytes] | None = None
    """An event written here as it stands behind these of the server, the first and some of the last; None: as it is."""
