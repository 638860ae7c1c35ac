"""What the page shows of the context of one exchange.

    GET /console/api/exchanges/{id}/context               ContextUse
    GET /console/api/exchanges/{id}/context?count=exact   the same; the backend counts the tokens of the whole request

All tokens are of the request as the model got it: after prompt trimming. `trims` begins with the untrimmed request.
"""

from typing import Literal, TypeAlias

import msgspec

PartKind: TypeAlias = Literal[
    "system",
    "tool",
    "schema",
    "user",
    "assistant",
    "reasoning",
    "call",
    "result",
    "image",
    "document",
    "audio",
    "frame",
    "other",
]
"""`schema`: of the response. `call`: a call of the model. `frame`: the text of roles and markers around all parts."""

Counting: TypeAlias = Literal["exact", "reported", "estimated"]
"""Who counted the whole request: `exact` the backend, just now; `reported` the upstream, in its usage. `estimated`:
neither did."""


class ContextPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a request."""

    kind: PartKind
    name: str
    """For people: `tool Bash`, `result of Read src/app.py`, `system prompt`."""
    excerpt: str = ""
    """The beginning of its text, in one line of at most 100 characters."""
    link: str = ""
    """As in the exchange view: `tool:Bash`, `message:3`, `call:0`."""
    message: int | None = None
    """Number of the message, from 0; None: it is not in a message."""
    tokens: int
    chars: int
    cached_tokens: int | None = None
    """Those in the prefix that the upstream read from its cache; None: it reported none."""


class ContextGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All parts of a kind."""

    kind: PartKind
    tokens: int
    count: int


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage in the response; None: the upstream did not report it."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    is_estimated: bool = False
    """The upstream reported none; the gateway estimated it."""


class ContextTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One captured exchange of the session; the oldest has number 1."""

    id: str
    number: int
    began_s: float
    """Seconds since 1970; 0: not known."""
    is_current: bool
    """The exchange that the page shows."""
    tokens: int
    growth: int
    """Tokens more than in the turn before; of the first turn 0."""
    messages: int
    messages_added: int
    usage: ReportedUsage
    groups: list[ContextGroup]
    changed: str = ""
    """Name of the first part that differs from the turn before: no cache holds what follows it. "": parts were only
    appended."""
    changed_at_tokens: int | None = None
    """Tokens before that part."""


class TrimmedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a level of trimming removes of one part."""

    kind: PartKind
    name: str
    link: str = ""
    tokens_before: int
    tokens_after: int


class TrimPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a level of `prompt_trim` would remove of this request."""

    level: str
    """`off`, `tools`, `aggressive`, `max`."""
    meaning: str
    tokens_before: int
    tokens_after: int
    parts: list[TrimmedPart]
    """Those that it changes, of which most is removed first; at most 50. Tokens after of 0: it is removed."""
    is_used: bool
    """The upstream of this exchange is set to this level."""
    is_applied: bool
    """This exchange was trimmed by this level."""
    is_within_budget: bool | None = msgspec.field(default=None, name="fits")
    """Whether tools and system prompt fit `budget_tokens`; None: there is no budget."""


class ContextUse(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one exchange."""

    id: str
    is_captured: bool
    """False: everything else is empty."""
    model: str = ""
    """The upstream's own name of the model."""
    upstream: str = ""
    counting: Counting = "estimated"
    tokenizer: str = ""
    """The family whose estimate is used for the parts, such as `qwen`; "": the general one."""
    explanation: str = ""
    """How the tokens were counted, in a sentence."""
    can_count: bool = False
    """Whether `?count=exact` can have a result."""
    tokens: int = 0
    """Of the whole request; the parts add up to it."""
    estimated_tokens: int = 0
    """Before the parts were scaled to what was reported or counted."""
    usage: ReportedUsage = ReportedUsage()
    context_window: int | None = None
    """Of the model, in tokens; None: not known."""
    groups: list[ContextGroup] = []
    """The largest first."""
    parts: list[ContextPart] = []
    """In the order of the prompt: tools, then messages; at most 1000."""
    omitted_parts: int = 0
    """Parts in the middle that are not listed."""
    omitted_tokens: int = 0
    largest: list[ContextPart] = []
    """The ten largest parts."""
    session: str = ""
    """The client's id of the conversation."""
    turns_by: Literal["session", "conversation", ""] = ""
    """How the turns were found: by the client's id, or as messages that continue each other; "": there is one turn."""
    turns: list[ContextTurn] = []
    """The oldest first; at most 200."""
    has_all_turns: bool = True
    """False: there are more captures than were read."""
    trims: list[TrimPreview] = []
    trim_setting: str = ""
    """Key of the setting that selects the level: `upstreams.NAME.prompt_trim`; "": this backend has none."""
    budget_tokens: int | None = None
    """Limit of tools and system prompt, from the measured prompt speed; None: no limit."""
