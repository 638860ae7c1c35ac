"""The record of one exchange, as values; the columns of `schema.exchanges` and `schema.calls` have the same names."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

BUCKETS_PER_DOUBLING: Final = 8
"""Resolution of `bucket`: a bucket is 9 % wide."""


class Series(msgspec.Struct, frozen=True):
    """What many exchanges have in common, which is stored once; "" or 0: not known, or not applicable."""

    version: str = ""
    """Version of Dragoman."""
    dialect: str = ""
    """The client's API: `openai_chat`, `openai_responses`, `anthropic_messages`."""
    key: str = ""
    """Name of the API key."""
    agent: str = ""
    role: str = ""
    """Which part of the agent asked: `main`, `subagent`, `title`, `background`."""
    model: str = ""
    """The model as the client named it; at most 100 characters."""
    alias: str = ""
    """`model`, if it is an alias of the settings."""
    upstream: str = ""
    """Name of the backend that answered, or was asked last."""
    upstream_model: str = ""
    """That backend's own name of the model."""
    tool_mode: str = ""
    """How tools reached the model: `native`, `prompt`, `completions`, ...; "" also without tools."""
    format: str = ""
    """The text format that was parsed."""
    stream: bool = False
    passthrough: bool = False
    """The response was passed through unparsed: of its calls only the number is known, or nothing."""
    finish: str = ""
    """The finish reason; "": the response did not end."""
    status: int = 0
    """The HTTP status; 499: the client disconnected."""
    error: str = ""
    """Name of the error, as in docs/errors.md."""


COARSE_LABELS: Final = ("version", "dialect", "agent", "upstream", "upstream_model", "tool_mode", "format")
"""Labels of `coarse_series`."""


def coarse_series(series: Series) -> Series:
    """Returns the series without the labels by which calls and times are rarely summed up.

    With people, roles and finish reasons, most days have about one call of each series and kind, so the sums of a day
    would have as many rows as the calls of that day.
    """
    labels = {name: getattr(series, name) for name in COARSE_LABELS}
    return Series(**{**labels, "upstream_model": series.upstream_model or series.model})


class CallKind(msgspec.Struct, frozen=True):
    """What many tool calls have in common, which is stored once."""

    tool: str = ""
    """Name of an offered tool; "": a tool that was not offered."""
    outcome: str = ""
    """One of `valid`, `repaired`, `reasked`, `recovered`, `unchecked`, `invalid`, `incomplete`, `unknown`."""
    repairs: str = ""
    """Names of the repairs, sorted, separated by commas."""


class ExchangeRecord(msgspec.Struct, frozen=True):
    """One exchange; None: not known, or not applicable."""

    ended_s: float
    """When it ended, in seconds since 1970."""
    id: str
    """The `x-request-id` without its prefix `req_`."""
    series: Series = Series()
    calls: Sequence[tuple[CallKind, int]] = ()
    """Tool calls of the response, with the number of each kind."""
    session: str | None = None
    """The agent's id of the conversation."""
    attempts: int = 0
    """Requests to backends: the first, retries, failover, re-asks."""
    failed_attempts: Sequence[tuple[str, str]] | None = None
    """Backend and reason of each attempt that failed."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """Those of `input_tokens` that the upstream read from its prompt cache."""
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Those of `output_tokens` that are reasoning."""
    tools_offered: int = 0
    error_message: str | None = None
    """The text of the error as it is logged, with its name."""
    warnings: Sequence[str] | None = None
    """Labels of the warnings, as in the access log."""
    first_ms: int | None = None
    """Time to the backend's first event."""
    total_ms: int = 0
    queue_ms: int | None = None
    """Time that the request waited for a slot of the upstream or for its model to load."""
    prompt_ms: int | None = None
    """Time that the model read the prompt."""
    cost_usd: float | None = None
    captured: str | None = None
    """Name of the folder of the capture."""


def bucket(ms: int) -> int:
    """Returns the number of the bucket of a duration, for `schema.day_times`."""
    return round(BUCKETS_PER_DOUBLING * math.log2(ms + 1))


def bucket_ms(number: int) -> float:
    """Returns the duration in the middle of a bucket, within 4.5 % of each duration of it."""
    return math.exp2(number / BUCKETS_PER_DOUBLING) - 1
