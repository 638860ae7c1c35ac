"""Vendor-neutral data types of a conversation: messages, parts, tools, requests and replies.

A dialect reads API JSON into these types and writes them back; formats and backends see nothing else.
All values are frozen. JSON that Dragoman does not need to parse stays text (`JsonText`) or bytes
(`msgspec.Raw`), exactly as it arrived: digits, key order and escapes are preserved.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, assert_never

import msgspec

JsonText: TypeAlias = str
"""JSON as text, unchanged."""

ANY_OBJECT: Final[JsonText] = '{"type":"object"}'
"""The response schema of JSON mode: any object."""

ANY_ARGUMENTS: Final[JsonText] = '{"type":"object","properties":{}}'
"""The parameters of a tool that states none."""

ExtraFields: TypeAlias = Mapping[str, msgspec.Raw]
"""Fields of the caller's JSON that these types do not model: carried along, never dropped."""

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
"""`tool` messages contain `ToolResult` parts only (the OpenAI shape); Anthropic's results are in `user` messages."""

SYSTEM_ROLES: Final[tuple[Role, ...]] = ("system", "developer")
"""Roles of instructions."""

FinishReason: TypeAlias = Literal["stop", "stop_sequence", "length", "tool_calls", "content_filter", "pause"]
"""`pause`: a tool that the vendor runs took too long; the client returns the reply unchanged and the model
continues."""

ToolLoading: TypeAlias = Literal["listed", "search", "found", "deferred"]
"""How the model gets to know a tool.

`listed`: its definition is in the prompt before the conversation. `search`: as `listed`, and it finds deferred tools.
`found`: a tool result contains its definition. `deferred`: the model has to find it first; a valid call is accepted.
"""

COMPLETE_FINISHES: Final[tuple[FinishReason, ...]] = ("stop", "tool_calls")
"""Reasons for which the model itself ended the reply; after a limit or a refusal it would end in the same way again."""


class FrozenStruct(msgspec.Struct, frozen=True, gc=False):
    """Base class: a frozen struct, compared by content."""


class MediaSource(FrozenStruct, frozen=True):
    """Where the bytes of an image, document or recording are: exactly one of `data`, `url`, `file_id`, `text`."""

    media_type: str = ""
    """MIME type; empty where the API does not report one."""
    data: str = ""
    """Base64."""
    url: str = ""
    """Dragoman never fetches it."""
    file_id: str = ""
    text: str = ""
    """Plain text of a document."""


class Text(FrozenStruct, frozen=True):
    """Text of the user or the model."""

    text: str
    extra: ExtraFields = {}


class Image(FrozenStruct, frozen=True):
    """An image in a message or a tool result."""

    source: MediaSource
    extra: ExtraFields = {}


class Document(FrozenStruct, frozen=True):
    """A PDF or a text, with an optional title."""

    source: MediaSource
    title: str = ""
    extra: ExtraFields = {}


class Audio(FrozenStruct, frozen=True):
    """An audio recording."""

    source: MediaSource
    extra: ExtraFields = {}


class Reasoning(FrozenStruct, frozen=True):
    """Reasoning of the model; `signature` or `redacted` prove to the vendor that its model wrote it."""

    text: str
    signature: str = ""
    redacted: str = ""
    """Encrypted reasoning, in place of `text`."""
    extra: ExtraFields = {}


class Refusal(FrozenStruct, frozen=True):
    """Text with which the model declines (OpenAI separates it from other text)."""

    text: str
    extra: ExtraFields = {}


class ToolCall(FrozenStruct, frozen=True):
    """A request of the model to run a tool."""

    id: str
    name: str
    arguments: JsonText
    """One JSON object; it may be incomplete if the model was cut off."""
    extra: ExtraFields = {}


class UnknownPart(FrozenStruct, frozen=True):
    """A part of an unknown type: carried unchanged, or rejected by name where it cannot be sent."""

    type: str
    raw: msgspec.Raw
    path: str = ""
    """Position in the caller's JSON, such as `$.messages[0].content[1]`."""
    dialect: str = ""
    """The API that defines the type, if the part belongs to a reply."""


class PreviousResponseRef(FrozenStruct, frozen=True):
    """A reference to an earlier response, or to a part of one, in place of its content."""

    reply_id: str
    """Same value as `Reply.id`."""
    number: int | None = None
    """Index of the part, from 0; None: the whole conversation up to and including that response."""
    path: str = ""
    """Position in the caller's JSON."""


ResultPart: TypeAlias = Text | Image | Document | Audio | UnknownPart


class ToolResult(FrozenStruct, frozen=True):
    """The result of a tool call."""

    call_id: str
    parts: tuple[ResultPart, ...]
    is_error: bool = False
    extra: ExtraFields = {}


Part: TypeAlias = (
    Text | Image | Document | Audio | Reasoning | Refusal | ToolCall | ToolResult | PreviousResponseRef | UnknownPart
)


class Message(FrozenStruct, frozen=True):
    """One message of one role; parts are in the order in which they were written."""

    role: Role
    parts: tuple[Part, ...]
    extra: ExtraFields = {}
    verbatim_text: str = ""
    """The model's own text of this message, verbatim. It is shown to the model in place of the parts. Empty: not
    known."""


class Tool(FrozenStruct, frozen=True):
    """A tool that the model may call."""

    name: str
    description: str = ""
    parameters: JsonText = ANY_ARGUMENTS
    """JSON Schema of the arguments, as the caller wrote it."""
    extra: ExtraFields = {}
    """For a tool that the vendor runs itself (`kind` other than "function"): all of its fields."""
    kind: str = "function"
    strict: bool = False
    """The model must be constrained to `parameters`, in APIs that have this option."""
    loading: ToolLoading = "listed"
    examples: tuple[JsonText, ...] = ()
    """Arguments of calls that worked in other conversations, for prompts that Dragoman writes."""


class ToolChoice(FrozenStruct, frozen=True):
    """Whether the model may, must or must not call tools."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """Name of the tool if `mode` is "named"."""
    parallel_tool_calls: bool = True
    """False: at most one call per response."""


ANY_TOOL: Final = "*"
"""In the place of a name in `Steps`: any tool that is not a terminal one."""


class Steps(FrozenStruct, frozen=True):
    """Tools that the model must call before it ends a turn; `dragoman.steps` computes what is allowed now.

    A turn begins with the user's last message. A call counts once its result is there and is not an error.
    """

    required: tuple[str, ...] = ()
    """Tools that must have succeeded; a name that is repeated asks for as many different calls; "*": any tool."""
    ordered: bool = False
    """The order of `required` is binding."""
    prerequisites: Mapping[str, tuple[str, ...]] = {}
    """By tool, the tools that must have succeeded before it."""
    terminal: tuple[str, ...] = ()
    """Tools that end the turn: allowed once all required steps are done, and required then."""
    max_calls: int = 40
    """Calls in a turn after which no tool may be called; `at_limit` names the exception."""
    max_calls_per_tool: Mapping[str, int] = {}
    """Calls of a tool in a turn, failed ones included; "*": of each other tool."""
    max_failures: int = 5
    """Failed calls in a row after which the same holds."""
    at_limit: Literal["text", "terminal"] = "text"
    """What follows after a limit: an answer in words, or the terminal tool."""
    after: Literal["free", "text"] = "free"
    """What follows after `required` without a terminal tool: the model's choice, or an answer in words."""
    derive: bool = False
    """The steps are derived from the tools."""
    path: str = ""
    """Position in the request, the header or the settings, for errors."""
    is_off: bool = False
    """The client wants no steps, nor those of a route."""
    is_default: bool = False
    """The steps are those of a route: they apply to requests that offer all of these tools."""


class FoldedCalls(FrozenStruct, frozen=True):
    """Calls of a turn, of which compaction left a summary."""

    summary: str = ""
    """Text of the message with the summary: the calls belong to the turn that begins with it."""
    calls: Mapping[str, int] = {}
    """Number of calls by tool."""
    done: tuple[tuple[str, str], ...] = ()
    """Different calls that succeeded: tool and digest of the arguments."""
    failures: int = 0
    """Failed calls since the last one that succeeded."""


class Sampling(FrozenStruct, frozen=True):
    """Sampling parameters. None: the backend's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class Request(FrozenStruct, frozen=True):
    """A request for one model response. A system prompt is the first message."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """Tokens of the response, reasoning included."""
    stop: tuple[str, ...] = ()
    response_schema: JsonText = ""
    """The response text must be JSON of this schema; empty: free text."""
    stream: bool = False
    stream_usage: bool = False
    """OpenAI's `stream_options.include_usage`; Anthropic always reports usage."""
    extra: ExtraFields = {}
    reasoning_effort: str = ""
    """Reasoning effort: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; empty: the model's default."""
    dialect: str = ""
    """The API that defines the fields in `extra`, here and in all parts; empty: the API that the request is sent to."""
    headers: Mapping[str, str] = {}
    """Client headers for a server of the same API, such as `anthropic-beta`."""
    previous_response: PreviousResponseRef | None = None
    """The response that this request continues; its conversation comes before the messages here."""
    instruction_count: int = 0
    """Number of leading messages that apply to this response only: a continuation does not inherit them."""
    reasoning_field: str = ""
    """Field in which the upstream server accepts past reasoning, where its API has several; empty: any."""
    response_name: str = ""
    """Name of the response schema."""
    response_description: str = ""
    """Description of the response schema."""
    response_strict: bool = False
    """The response must match the schema, in APIs that also have weaker guarantees."""
    choices: int = 1
    """Number of responses to generate at once, `n` of Chat Completions."""
    store: bool = False
    """The response may be continued, or parts of it referenced, later: the gateway stores it for a while."""
    accepts_parallel_calls: bool = False
    """The client states that it accepts several calls in one response, also where a call is required."""
    steps: Steps | None = None
    """Steps that restrict `tools` and `tool_choice`; None: there are none."""
    has_extension: bool = False
    """The body contains Dragoman's own field, which must not be sent upstream."""
    prompt_tools: tuple[Tool, ...] = ()
    """All tools of a request whose `tools` are restricted to those that steps allow now. The embedded engine describes
    them in the prompt, which thus stays the same; empty: `tools`."""
    folded: FoldedCalls | None = None
    """Earlier calls of the present turn, which the gateway's compaction has replaced by a summary."""


class Usage(FrozenStruct, frozen=True):
    """Token counts of one exchange, in tokens of the model's own tokenizer."""

    input_tokens: int = 0
    """Whole prompt, cached part included."""
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """Part of `input_tokens` that was read from the cache."""
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    """Part of `input_tokens` that was written to the cache."""
    cost_usd: float | None = None
    """Total cost in US dollars, if the backend reports it."""
    extra: ExtraFields = {}
    """Other counts of the upstream server, by their names in its API."""
    dialect: str = ""
    """The API that defines the names in `extra`."""


class Reply(FrozenStruct, frozen=True):
    """A whole response, as `collect` builds it from events."""

    id: str
    model: str
    created: int
    """Seconds since 1970."""
    parts: tuple[Part, ...]
    finish_reason: FinishReason
    stop_sequence: str = ""
    usage: Usage = Usage()
    details: ExtraFields = {}
    """Fields of the client's API other than the parts, such as `audio` and `service_tier`."""


def add_usage(one: Usage, other: Usage) -> Usage:
    """Returns the sum of the token counts of two responses; `cost_usd` only if both report it."""
    cost = None if one.cost_usd is None or other.cost_usd is None else one.cost_usd + other.cost_usd
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_input_tokens + other.cached_input_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        cost,
    )


def tools_before_conversation(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Returns the tools whose definitions are in the prompt before the conversation."""
    if all(tool.loading == "listed" for tool in tools):
        return tools
    return tuple(tool for tool in tools if tool.loading in ("listed", "search"))


def known_tools(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Returns the tools whose definitions the model knows, those found in the conversation last."""
    if all(tool.loading == "listed" for tool in tools):
        return tools
    found = (tool for tool in tools if tool.loading == "found")
    return (*tools_before_conversation(tools), *found)


def has_part(messages: Iterable[Message], *types: type[Part]) -> bool:
    """Returns whether a message has a part of one of these types."""
    for message in messages:
        for part in message.parts:
            if type(part) in types:
                return True
    return False


_NO_WORD: Final = re.compile(r"\W+")


def part_text(part: Part) -> str:
    """Returns the part as plain text; "" for reasoning, calls and results."""
    match part:
        case Text(text) | Refusal(text):
            return text
        case Document(source, title) if source.text:
            return f"{title}\n{source.text}" if title else source.text
        case Image() | Audio() | Document():
            return f"[{type(part).__name__.lower()}]"
        case UnknownPart(type=kind):
            return f"[{_NO_WORD.sub('_', kind).lower()}]"  # cannot contain a control token
        case Reasoning() | ToolCall() | ToolResult() | PreviousResponseRef():
            return ""
        case _:
            assert_never(part)
