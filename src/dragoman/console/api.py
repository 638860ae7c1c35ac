"""Values that several pages of the console share, as JSON."""

from typing import Literal

import msgspec


class RowCall(msgspec.Struct, frozen=True):
    """Tool calls of one exchange that have everything in common."""

    tool: str
    """Name of an offered tool; "": a tool that was not offered."""
    outcome: str
    """As in `records.record.CallKind`: `valid`, `repaired`, `reasked`, `recovered`, ..."""
    repairs: list[str] = []
    count: int = 1


class TrafficRow(msgspec.Struct, frozen=True):
    """One exchange in the list; None or "": not known."""

    id: str
    """The `x-request-id`."""
    began_s: float
    """Seconds since 1970."""
    state: Literal["running", "done", "failed"]
    dialect: str = ""
    agent: str = ""
    role: str = ""
    key: str = ""
    """Name of the API key."""
    session: str = ""
    """The agent's id of the conversation."""
    model: str = ""
    """The model as the client named it."""
    upstream: str = ""
    upstream_model: str = ""
    tool_mode: str = ""
    format: str = ""
    stream: bool = False
    status: int = 0
    finish: str = ""
    error: str = ""
    """Name and text of the error."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    first_ms: int | None = None
    total_ms: int | None = None
    attempts: int = 0
    calls: list[RowCall] = []
    warnings: list[str] = []
    """Codes of the warnings, with the names that they are about."""
    is_captured: bool = False
    """Whether the exchange can be shown with its text."""


class TrafficPage(msgspec.Struct, frozen=True):
    """Ended exchanges, the newest first."""

    rows: list[TrafficRow]
    has_more: bool = False
    """Whether there are older ones."""


class CaptureState(msgspec.Struct, frozen=True):
    """Whether exchanges are captured."""

    mode: Literal["off", "memory", "disk"]
    filter: str = ""
    """Which ones: `all`, `failed`, `requested`."""


class ConsoleState(msgspec.Struct, frozen=True):
    """What the page needs to know at its start."""

    version: str
    capture: CaptureState
    has_keys: bool
    """Whether a session of an API key is needed."""
    key: str
    """Name of the key of this session; "": without a name, or none is needed."""
    has_records: bool
    """Whether ended exchanges are in a database, so that earlier ones can be listed."""
    models: list[str]
    apis: list[str]
    """Paths of the APIs."""
    workers: int = 1


class ApiError(msgspec.Struct, frozen=True):
    """Why a request was not answered."""

    code: str
    message: str


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of a response with an error."""

    error: ApiError
