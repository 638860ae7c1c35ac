"""The JSON of `GET /console/api/reports` and `GET /console/api/keys`."""

import msgspec


class ReportColumns(msgspec.Struct):
    """Numbers of exchanges, one in each list for each time of the report; null: not known."""

    exchanges: list[int] = []
    errors: list[int] = []
    """Exchanges that ended in an error."""
    attempts: list[int] = []
    """Requests to backends: the first, retries, failover, re-asks."""
    input_tokens: list[int] = []
    cached_tokens: list[int] = []
    """Those of `input_tokens` that the upstream read from its prompt cache."""
    output_tokens: list[int] = []
    reasoning_tokens: list[int] = []
    cost_usd: list[float] = []
    calls: list[int] = []
    """Tool calls, of all outcomes."""
    valid: list[int] = []
    repaired: list[int] = []
    reasked: list[int] = []
    recovered: list[int] = []
    unchecked: list[int] = []
    invalid: list[int] = []
    incomplete: list[int] = []
    unknown: list[int] = []
    """Calls of tools that were not offered."""
    failed: list[int] = []
    """The sum of `invalid`, `incomplete` and `unknown`: calls that the client cannot run."""
    first_p50_ms: list[int | None] = []
    """Time to the first event, of exchanges without an error."""
    first_p95_ms: list[int | None] = []
    total_p50_ms: list[int | None] = []
    total_p95_ms: list[int | None] = []


class ReportSeries(msgspec.Struct):
    """The exchanges of one group."""

    name: str
    """The label of the group, such as the name of a model; "": exchanges that have no such label."""
    totals: ReportColumns
    """Of the whole period: each list has one number."""
    points: ReportColumns
    """By time."""
    is_rest: bool = False
    """Whether this is the sum of all groups that are not shown."""


class WorstGroup(msgspec.Struct):
    """A model or a tool whose calls fail significantly more often than those of the others."""

    kind: str
    """`model` or `tool`."""
    name: str
    calls: int
    failed: int
    failed_share: float
    failed_share_of_others: float
    probability: float
    """Probability that a group differs so much by chance."""
    text: str
    """The finding as a sentence."""


class ReportsView(msgspec.Struct):
    """A report over time."""

    begin_s: float
    """Seconds since 1970."""
    end_s: float
    step_s: int
    """Seconds between two times: an hour or a day."""
    times: list[int]
    """Begin of each hour or day (UTC), in seconds since 1970."""
    by: str
    """The label that divides the exchanges."""
    labels: list[str]
    """All values of `by`."""
    total: ReportSeries
    """All exchanges; without a name."""
    series: list[ReportSeries]
    """The groups with the most exchanges first, or, by tool, with the most calls; the rest as one series at the end.

    By tool, all numbers but those of calls are 0 or null.
    """
    worst: list[WorstGroup]
    rule: str
    """How `worst` is decided, and whether there was anything to compare, as sentences."""
    notes: list[str] = []
    """What to know about the numbers."""


class KeyPeriodView(msgspec.Struct):
    """What a key has used on this day (UTC) or in this month."""

    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_usd: float
    resets_at: str
    """Time at which it becomes 0, as ISO 8601."""


class KeyBudgetView(msgspec.Struct):
    """A budget of a key."""

    name: str
    """The setting, such as `budget_usd_per_day`."""
    unit: str
    """`usd` or `tokens`."""
    period: str
    """`day` or `month`."""
    limit: float
    used: float
    reserved: float
    """For running requests."""
    remaining: float
    resets_at: str


class KeyLimitView(msgspec.Struct):
    """A limit of a minute, or of concurrent requests."""

    name: str
    """The setting, such as `requests_per_minute`."""
    limit: int
    remaining: int | None = None
    """Null: not known."""
    reset_s: float | None = None
    """Seconds until all of it is available again; null: there is no such time."""


class KeyView(msgspec.Struct):
    """A named key, without its secret."""

    name: str
    state: str
    """`valid`, `expired` or `revoked`."""
    source: str
    """`settings` or `file`."""
    is_admin: bool = False
    models: list[str] = []
    """Patterns of what may be used; empty: all."""
    upstreams: list[str] = []
    tools: list[str] = []
    expires: str = ""
    """Date or time; "": never."""
    day: KeyPeriodView | None = None
    """Null: not known."""
    month: KeyPeriodView | None = None
    budgets: list[KeyBudgetView] = []
    limits: list[KeyLimitView] = []


class KeysView(msgspec.Struct):
    """The named keys, and whether requests need one."""

    is_on: bool
    """Whether requests need a key."""
    unnamed: int
    """Number of keys without a name (`server.api_keys`): they have all rights, and their use is not counted."""
    keys: list[KeyView]
    omitted: int = 0
    """Number of keys that are not listed, because there are too many."""
    error: str = ""
    """Why the use of keys is not known; "": it is."""
