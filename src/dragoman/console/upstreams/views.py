"""What the page shows of upstreams, models and settings.

    GET  /console/api/upstreams                               UpstreamList
    POST /console/api/upstreams/{name}/probe  {"model": "m"}  SSE: `progress` ProbeProgress, then `result` ProbeView
    GET  /console/api/models                                  ModelsView
    GET  /console/api/models/facts?name=m                     ModelDetail
    POST /console/api/models/load    {"model": "m"}           LoadResult, when the model is ready
    POST /console/api/models/unload  {"model": "m"}           LoadResult
    POST /console/api/models/pull    {"model": "m"}           SSE: `progress` PullProgress, `note` PullNote, then
                                                              `result` PullResult; a running pull is joined, and runs
                                                              on without the page
    POST /console/api/models/pull/stop  {"model": "m"}        PullStop; what has arrived is kept
    GET  /console/api/settings                                SettingList

The two streams of events end with `result`, or with `error` {"error": {"message", "code"}}.
"""

from typing import Literal, TypeAlias

import msgspec

BackendKind: TypeAlias = Literal["http", "embedded", "claude_cli", "other"]
UpstreamState: TypeAlias = Literal["ready", "limited", "trying", "failing", "unavailable"]
"""`limited`: a model has reached its quota. `trying`: after failures, one request tests the server. `failing`: the
circuit breaker is open. `unavailable`: it is not ready, and lists no model."""
BreakerStateName: TypeAlias = Literal["closed", "open", "trying", ""]
"""Of the circuit breaker; "": the backend has none."""
LoadState: TypeAlias = Literal["", "waiting", "loading", "ready", "unloading"]
"""`waiting`: for memory of other models; "": not loaded."""


class NamedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value for people."""

    name: str
    value: str


# Upstreams


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that has reached a limit of its vendor."""

    model: str
    seconds: int
    """Until it gets requests again."""


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, as the records have it."""

    ended_s: float
    """When the exchange ended, in seconds since 1970."""
    id: str
    """The exchange."""
    model: str
    reason: str
    answered: bool
    """Whether the client got a response all the same, from a retry or another upstream."""


class ModeView(msgspec.Struct, frozen=True, kw_only=True):
    """How one model of an upstream is requested."""

    model: str
    tool_mode: str
    """`native`, `parse` or `prompt`."""
    call_format: str
    """"": by the model's name."""
    endpoint: str
    """`chat` or `completions`."""
    constrain: list[str]
    why: str
    is_auto: bool
    """The settings leave the mode open."""


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of a probe."""

    what: str
    verdict: Literal["yes", "partly", "no", "unknown"]
    text: str
    """The evidence, in a sentence."""
    facts: list[NamedValue]
    """The evidence for programs; values are JSON."""


class QuirkView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider."""

    description: str
    source: str


class ProbeView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of probing one model."""

    model: str
    api: str
    provider: str
    title: str
    version: str
    probed_s: float
    """Seconds since 1970."""
    seconds: float
    """How long it took; 0: not known."""
    tool_mode: str
    call_format: str
    constrain: list[str]
    why: str
    findings: list[FindingView]
    """Empty: an earlier version did not store them, or the provider needs no probe."""
    quirks: list[QuirkView]
    settings: str
    """TOML for the settings file; "": only a new probe has it."""


class ProbeProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The check that begins."""

    what: str
    number: int
    """From 1."""
    count: int


class UpstreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A backend: its state, its models, and what failed."""

    name: str
    kind: BackendKind
    url: str
    """"": it is not a server."""
    provider: str
    """Row of the catalogue of servers; "": not known."""
    title: str
    """Name of the provider, for people."""
    api: str
    state: UpstreamState
    explanation: str
    """What the state means, and what to do."""
    breaker: BreakerStateName
    active: int | None
    waiting: int | None
    max_concurrency: int | None
    """Concurrency slots; 0: unlimited; None: not known."""
    max_queue: int | None
    quota: list[QuotaView]
    models: list[str]
    """At most 200."""
    model_count: int
    modes: list[ModeView]
    """Of the models that were requested since the start, or probed; at most 50."""
    facts: list[NamedValue]
    """Other facts of its health."""
    failures: list[FailureView]
    """The newest first; at most 20."""
    can_probe: bool
    probes: list[ProbeView]
    """At most 50, the newest first."""


class UpstreamList(msgspec.Struct, frozen=True, kw_only=True):
    """All backends, in the order in which they are asked."""

    upstreams: list[UpstreamView]
    has_records: bool
    """False: no exchanges are recorded, so failures are not known."""
    process: int
    workers: int
    """With several, states are those of the process that answered."""


# Models


class LocalModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose file is on this machine."""

    name: str
    aliases: list[str]
    kind: Literal["text", "embeddings", "rerank"]
    origin: str
    """`pulled`, `folder`, `settings`, `ollama`, `lmstudio`, `huggingface`."""
    path: str
    size_bytes: int
    context_window: int
    trained_context: int
    call_format: str
    """"": it writes no text."""
    vision: bool
    audio: bool
    memory_bytes: int
    """Estimated memory when it is loaded."""
    is_default: bool
    is_pinned: bool
    state: LoadState
    active: int
    waiting: int
    restarts: int
    expires_s: int | None
    """Until it is unloaded, if no request comes; None: never, or it is busy."""
    facts: list[NamedValue]
    """Other facts of the running engine: hardware, speed, saved prefixes."""


class ServedModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that clients can request."""

    id: str
    display_name: str
    upstream: str
    context_window: int | None
    aliases: list[str]


class CatalogueModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be pulled by its name."""

    name: str
    aliases: list[str]
    is_default: bool
    size_bytes: int
    licence: str
    is_downloaded: bool
    description: str
    note: str


class MemoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory for models, in bytes; None: not known."""

    total_bytes: int | None
    free_bytes: int | None
    limit_bytes: int | None
    """Of the setting `embedded.memory_mb`."""
    used_bytes: int
    """Estimated, of the loaded models."""


class PullView(msgspec.Struct, frozen=True, kw_only=True):
    """A running download."""

    model: str
    progress: "PullProgress"


class ModelsView(msgspec.Struct, frozen=True, kw_only=True):
    """Models of this machine, of upstreams, and of the catalogue."""

    local: list[LocalModelView]
    served: list[ServedModelView]
    """At most 1000."""
    served_count: int
    catalogue: list[CatalogueModelView]
    memory: MemoryView
    can_load: bool
    """Whether this gateway runs models."""
    note: str
    """Why not, and what to do; "" if it does."""
    pulls: list[PullView] = []
    """The running downloads; POST to `pull` joins one."""


class ModelDetail(msgspec.Struct, frozen=True, kw_only=True):
    """As `dragoman models show` prints."""

    model: LocalModelView
    facts: list[NamedValue]
    """The lines of `dragoman models show`, in their order."""


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The state after loading or unloading."""

    model: str
    state: LoadState
    message: str
    """Such as: it is unloaded after its 2 running requests."""


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a download is."""

    step: str
    """`downloading`, `checking`, `part 2 of 3`, ..."""
    done_bytes: int
    total_bytes: int
    """0: not known."""
    bytes_per_s: float
    seconds_left: float | None


class PullStop(msgspec.Struct, frozen=True, kw_only=True):
    """A download that is asked to stop."""

    model: str
    stopped: bool
    """False: it is not running."""


class PullNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a download reports: the chosen file, another source."""

    text: str


class PullResult(msgspec.Struct, frozen=True, kw_only=True):
    """The downloaded model."""

    model: str
    path: str
    projector: str
    """"": it has none."""


# Settings


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in force."""

    key: str
    section: str
    """The part of the key before its last name: `server`, `upstreams.far`."""
    value: str
    """As in the settings file (TOML); "" if it is secret."""
    is_secret: bool
    origin: str
    """`default`, the file, an environment variable, or the command line."""
    is_default: bool
    description: str
    choices: tuple[str, ...] = ()
    """The allowed values; empty: any of its type."""


class SettingList(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings."""

    config_path: str
    """"": there is no settings file."""
    default_path: str = ""
    """The settings file that would be read if it existed; "": there is one, or it is not known."""
    file_content: str = ""
    """The settings in force that are not the default, as a settings file without secrets; "" if there is a file."""
    reload: str
    """What a change of the file needs to take effect."""
    settings: list[SettingView]
    problems: list[str]
    """What `dragoman serve` reports about them at the start."""
