"""Every event, message and error reaches another process unchanged."""

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.backends.shared import codec
from dragoman.core import errors, events, messages
from dragoman.core.errors import DragomanError
from dragoman.core.events import (
    AnyEvent,
    Detail,
    EventOrderError,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
    VendorBlock,
    VendorBlockStart,
)
from dragoman.core.messages import (
    Audio,
    Document,
    FoldedCalls,
    Image,
    MediaSource,
    Message,
    PreviousResponseRef,
    Reasoning,
    Refusal,
    Request,
    Sampling,
    Steps,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    UnknownPart,
    Usage,
)

RAW = msgspec.Raw(b'{"big": 1.50, "\\u00e9" : [1,2]}')
"""JSON that would change if it were parsed and written again."""
EXTRA = {"field": RAW}
USAGE = Usage(1, 2, 3, 4, 5, 0.25, EXTRA, "openai_chat")
EVENTS: list[AnyEvent] = [
    Start("id1", "model", 1_800_000_000, 7, {"x-header": "value"}),
    ReasoningDelta("thinks", "signature", "redacted"),
    TextDelta("text with \x00 and é and 🙂"),
    RefusalDelta("no"),
    VendorBlock("anthropic_messages", "search", '{"a": 1.50}', ("completed",)),
    VendorBlockStart("openai_responses", "search", '{"a": 1.50}', ("in_progress",), '{"a": 1}'),
    Detail("logprobs", "[1.50]", "openai_chat"),
    ToolCallStart(3, "call_1", "weather"),
    ToolCallDelta(3, '{"city":'),
    ToolCallEnd(3, ("name", "json"), False, True, "late"),
    ToolCallIncomplete(3, "raw"),
    Notice("code", "message", "raw", "detail"),
    UsageUpdate(USAGE),
    Finish("stop_sequence", "END"),
    Failure(errors.UpstreamError("broke off", status=502)),
]
SOURCE = MediaSource("image/png", "AAAA", "https://x", "file", "text")
PARTS: list[messages.Part] = [
    Text("hello", EXTRA),
    Image(SOURCE, EXTRA),
    Document(SOURCE, "title", EXTRA),
    Audio(SOURCE, EXTRA),
    Reasoning("why", "signature", "redacted", EXTRA),
    Refusal("no", EXTRA),
    ToolCall("call_1", "weather", '{"n": 1.50}', EXTRA),
    ToolResult("call_1", (Text("warm"), Image(SOURCE)), True, EXTRA),
    PreviousResponseRef("resp_1", 2, "$.input[0]"),
    UnknownPart("new", RAW, "$.x", "openai_responses"),
]
REQUEST = Request(
    "model",
    (Message("user", tuple(PARTS), EXTRA, "verbatim"), Message("assistant", ())),
    (Tool("weather", "text", '{"type": "object"}', EXTRA, "custom", True, examples=("{}",)),),
    ToolChoice("named", "weather", False),
    Sampling(0.5, 1.0, 40, 10**30, 0.1, -0.1),
    10**25,
    ("END", "STOP"),
    '{"type": "object"}',
    True,
    True,
    EXTRA,
    "high",
    "openai_chat",
    {"anthropic-beta": "x"},
    PreviousResponseRef("resp_1"),
    1,
    "reasoning_content",
    "name",
    "description",
    True,
    2,
    True,
    True,
    Steps(("find",), True),
    True,
    (Tool("find"),),
    FoldedCalls("Summary", {"find": 2}, (("find", "digest"),), 1),
)
ERRORS: list[DragomanError] = [
    DragomanError("base", retry_after_s=1.5),
    errors.ClientError("client"),
    errors.RateLimitError("too many", retry_after_s=2.0, is_permanent=True),
    errors.BudgetExceededError("used up", retry_after_s=60.0),
    errors.RequestError("expected a, got b", "$.messages[0]"),
    errors.UnknownResponseError("gone", "$.previous_response_id"),
    errors.UnsupportedError("not here", "$.n"),
    errors.ContextOverflowError(10, 20, 15),
    errors.AuthError("key"),
    errors.ForbiddenError("host"),
    errors.NotFoundError("path"),
    errors.MethodNotAllowedError("/v1", "PUT", ("GET", "HEAD")),
    errors.WebSocketUnsupportedError("upgrade"),
    errors.UnknownModelError("gpt", ("a", "b")),
    errors.RequestTooLargeError("large"),
    errors.ContentEncodingError("br", ("gzip", "zstd")),
    errors.ConfigError("setting"),
    errors.UsageError("usage"),
    errors.RemoteError("remote", retry_after_s=2.0),
    errors.QueueFullError("full", retry_after_s=3.0),
    errors.UpstreamError("said no", status=429, retry_after_s=4.0, headers={"x-limit": "1"}),
    errors.BackendUnavailableError("down", retry_after_s=5.0),
    errors.NotAskedError("down", retry_after_s=5.0),
    errors.UpstreamTimeoutError("silent"),
    EventOrderError("order"),
]


def sent(value: object) -> Any:
    """The value as it arrives in the other process."""
    frame = codec.encode(value)
    assert int.from_bytes(frame[: codec.LENGTH_BYTES]) == len(frame) - codec.LENGTH_BYTES
    return codec.decode(frame[codec.LENGTH_BYTES :])


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that fields of requests have; sequences and mappings are not empty."""
    origin, kinds = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(kinds)
    if origin in (Union, UnionType):
        return st.one_of([st.none() if each is type(None) else values(each) for each in kinds])
    if origin is tuple:
        return st.lists(values(kinds[0]), min_size=1, max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(*map(values, kinds), min_size=1, max_size=2)
    if issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{name: values(each) for name, each in get_type_hints(kind).items()})
    plain = {str: st.text(max_size=4), bool: st.booleans(), int: st.integers(), float: st.floats(allow_nan=False)}
    return st.just(RAW) if kind is msgspec.Raw else plain[kind]


@given(st.data())
@pytest.mark.parametrize("name", Request.__struct_fields__)
def test_each_field_of_a_request_arrives_unchanged(name: str, data: st.DataObject) -> None:
    request = msgspec.structs.replace(REQUEST, **{name: data.draw(values(get_type_hints(Request)[name]))})
    assert sent(request) == request


def fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def has_only_set_fields(value: msgspec.Struct) -> bool:
    """Whether no field is at its default, so that a field that is lost would be noticed."""
    defaults = {f.name: f.default for f in msgspec.structs.fields(type(value))}
    return all(value != defaults[name] for name, value in fields(value).items())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_event_arrives_unchanged(event: AnyEvent) -> None:
    arrived = sent(event)
    assert type(arrived) is type(event)
    if isinstance(event, Failure):
        assert_same_error(arrived.error, event.error)
    else:
        assert arrived == event
    assert has_only_set_fields(event), "a field has its default"


def test_every_event_class_is_tested() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(AnyEvent))


def test_request_arrives_unchanged() -> None:
    arrived = sent(REQUEST)
    assert arrived == REQUEST
    assert bytes(arrived.extra["field"]) == bytes(RAW)
    assert isinstance(arrived.messages, tuple)
    assert has_only_set_fields(REQUEST), "a field has its default"


def test_every_part_class_is_tested() -> None:
    assert {type(part) for part in PARTS} == set(get_args(messages.Part))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_error_arrives_with_class_status_and_fields(error: DragomanError) -> None:
    assert_same_error(sent(error), error)


def test_every_error_class_is_tested() -> None:
    known = {
        cls
        for module in (errors, events)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, DragomanError)
    }
    assert {type(error) for error in ERRORS} == known


def assert_same_error(arrived: DragomanError, error: DragomanError) -> None:
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert arrived.status_hint == error.status_hint
    assert vars(arrived) == vars(error)


class NewError(errors.QueueFullError):
    """An error that the other process does not know."""


def test_unknown_error_arrives_as_its_known_base_class() -> None:
    arrived = sent(NewError("full", retry_after_s=2.0))
    assert type(arrived) is errors.QueueFullError
    assert arrived.retry_after_s == 2.0


class Piece(NamedTuple):
    text: str
    count: int


class Inner(msgspec.Struct):
    role: str
    content: msgspec.Raw
    empty: str = ""


def test_unknown_types_arrive_as_captures_contain_them() -> None:
    piece = sent(Piece("a", 1))
    assert piece._asdict() == {"text": "a", "count": 1}
    assert type(piece).__name__ == "Piece"
    arrived: Mapping[str, Any] = sent({"turn": Inner("user", RAW)})
    assert arrived == {"turn": {"is": "Inner", "role": "user", "content": RAW}}


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, True, None, 1.5, b"\x00\xff"])
def test_plain_value_arrives_unchanged(value: object) -> None:
    arrived = sent([value])[0]
    assert arrived == value
    assert type(arrived) is type(value)
