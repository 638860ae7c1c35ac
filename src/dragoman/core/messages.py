"""What a conversation is made of, in no API's own shape.

A dialect reads API JSON into these values and writes them back; formats and backends see nothing else.
All values are frozen. JSON that Dragoman has no reason to look into stays text (`JsonText`) or bytes
(`msgspec.Raw`), exactly as it came: digits, key order and escapes survive.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

JsonText: TypeAlias = str
"""JSON as text, verbatim."""

ExtraFields: TypeAlias = Mapping[str, msgspec.Raw]
"""Fields of the caller's JSON that have no place of their own here: carried, never dropped."""

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
"""`tool` messages hold `ToolResult` parts only (the OpenAI shape); Anthropic's results sit in `user` messages."""

FinishReason: TypeAlias = Literal["stop", "stop_sequence", "length", "tool_calls", "content_filter", "pause"]
"""`pause`: the vendor's own tools took long; the client sends the reply back as it is, and the model goes on."""


class FrozenStruct(msgspec.Struct, frozen=True, gc=False):
    """A frozen value; equality is by content."""


class MediaSource(FrozenStruct, frozen=True):
    """Where the bytes of an image, document or recording are: exactly one of `data`, `url`, `file_id`, `text`."""

    media_type: str = ""
    """MIME type, or empty where the API does not say."""
    data: str = ""
    """Base64."""
    url: str = ""
    """Never fetched by Dragoman."""
    file_id: str = ""
    text: str = ""
    """Plain text of a document."""


class Text(FrozenStruct, frozen=True):
    """Words of the user or the model."""

    text: str
    extra: ExtraFields = {}


class Image(FrozenStruct, frozen=True):
    """A picture."""

    source: MediaSource
    extra: ExtraFields = {}


class Document(FrozenStruct, frozen=True):
    """A PDF or a text with a title."""

    source: MediaSource
    title: str = ""
    extra: ExtraFields = {}


class Audio(FrozenStruct, frozen=True):
    """A recording."""

    source: MediaSource
    extra: ExtraFields = {}


class Reasoning(FrozenStruct, frozen=True):
    """The model's thoughts; `signature` or `redacted` prove to the vendor that they are its own."""

    text: str
    signature: str = ""
    redacted: str = ""
    """Opaque thoughts in place of `text`."""
    extra: ExtraFields = {}


class Refusal(FrozenStruct, frozen=True):
    """The model's words when it declines (OpenAI keeps them apart from text)."""

    text: str
    extra: ExtraFields = {}


class ToolCall(FrozenStruct, frozen=True):
    """A request of the model to run a tool."""

    id: str
    name: str
    arguments: JsonText
    """One JSON object; not necessarily complete when the model was cut off."""
    extra: ExtraFields = {}


class UnknownPart(FrozenStruct, frozen=True):
    """A part that this version does not know: carried as it is, or refused by name where it cannot go on."""

    type: str
    raw: msgspec.Raw
    path: str = ""
    """Where it stood in the caller's JSON, `$.messages[0].content[1]`."""
    dialect: str = ""
    """The API that has it, where it is part of a reply."""


class PreviousResponseRef(FrozenStruct, frozen=True):
    """An answer that was given before, or a part of it, named in place of being said again."""

    reply_id: str
    """As `Reply.id`."""
    number: int | None = None
    """Of the part, from 0; None: the whole conversation up to that answer."""
    path: str = ""
    """Where it stood in the caller's JSON."""


ResultPart: TypeAlias = Text | Image | Document | Audio | UnknownPart


class ToolResult(FrozenStruct, frozen=True):
    """What came of a call."""

    call_id: str
    parts: tuple[ResultPart, ...]
    is_error: bool = False
    extra: ExtraFields = {}


Part: TypeAlias = (
    Text | Image | Document | Audio | Reasoning | Refusal | ToolCall | ToolResult | PreviousResponseRef | UnknownPart
)


class Message(FrozenStruct, frozen=True):
    """One turn of one speaker; parts in the order they were said."""

    role: Role
    parts: tuple[Part, ...]
    extra: ExtraFields = {}
    written: str = ""
    """The model's own text of all this, word for word; it is shown that in place of the parts. Empty: not known."""


class Tool(FrozenStruct, frozen=True):
    """A function that the model may ask for."""

    name: str
    description: str = ""
    parameters: JsonText = '{"type":"object","properties":{}}'
    """JSON Schema of the arguments, as the caller wrote it."""
    extra: ExtraFields = {}
    """For a tool that the vendor runs itself (`kind` other than "function"): all of its fields."""
    kind: str = "function"
    strict: bool = False
    """The model must be constrained to `parameters`, where the API distinguishes that."""


class ToolChoice(FrozenStruct, frozen=True):
    """How free the model is to call tools."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """The tool, where mode is "named"."""
    parallel: bool = True
    """False: one call a reply at most."""


class Sampling(FrozenStruct, frozen=True):
    """How the next token is picked. None: the backend's own default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class Request(FrozenStruct, frozen=True):
    """One question to a model. A system prompt is the first message."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """Tokens of the reply, thoughts included."""
    stop: tuple[str, ...] = ()
    response_schema: JsonText = ""
    """The reply's text must be JSON of this schema; empty: free text."""
    stream: bool = False
    stream_usage: bool = False
    """OpenAI's `stream_options.include_usage`; Anthropic always reports usage."""
    extra: ExtraFields = {}
    effort: str = ""
    """How long to think: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; empty: as the model does."""
    dialect: str = ""
    """The API whose fields `extra` holds, here and in all parts; empty: whichever it is sent to."""
    headers: Mapping[str, str] = {}
    """What the client's headers ask of a server of its own API, such as `anthropic-beta`."""
    previous: PreviousResponseRef | None = None
    """The answer that this goes on from; its conversation stands before the messages here."""
    instructions: int = 0
    """Messages at the beginning that hold for this answer alone: what goes on from it does not inherit them."""
    thoughts_as: str = ""
    """The field in which the server behind gives the model its past thoughts, where its API has several; empty: any."""
    response_name: str = ""
    """The name of the reply's schema."""
    response_description: str = ""
    """What the reply's schema is for."""
    response_strict: bool = False
    """The reply must be of the schema, where an API has weaker promises too."""
    choices: int = 1
    """Answers to give at once, `n` of Chat Completions."""
    keep: bool = False
    """The answer may be gone on from, or parts of it be named: whoever answers keeps it for a while."""
    several: bool = False
    """The client states that it takes several calls in one answer, also where a call is required."""


class Usage(FrozenStruct, frozen=True):
    """Tokens of one exchange, in the model's own tokens."""

    input_tokens: int = 0
    """All of the prompt, cached part included."""
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """Of them, read from the cache."""
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    """Written to the cache."""
    cost_usd: float | None = None
    """All of it, in US dollars, where the backend tells that."""
    extra: ExtraFields = {}
    """What else the upstream counts, by the names of its API."""
    dialect: str = ""
    """The API of `extra`."""


class Reply(FrozenStruct, frozen=True):
    """A whole answer, as `collect` makes it from events."""

    id: str
    model: str
    created: int
    """Seconds since 1970."""
    parts: tuple[Part, ...]
    finish: FinishReason
    stop_sequence: str = ""
    usage: Usage = Usage()
    details: ExtraFields = {}
    """What the client's API has besides the parts, such as `audio` and `service_tier`."""


def add_usage(one: Usage, other: Usage) -> Usage:
    """The tokens of two answers; what they cost where both tell."""
    cost = None if one.cost_usd is None or other.cost_usd is None else one.cost_usd + other.cost_usd
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_input_tokens + other.cached_input_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        cost,
    )
