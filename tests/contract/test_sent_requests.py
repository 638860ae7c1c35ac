"""Requests to upstream servers: unchanged for the same API; for another API, everything that is dropped is reported."""

import json
from functools import cache, partial
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.core import messages as v
from dragoman.core.errors import ClientError, UnsupportedError
from dragoman.schema.adapt import adapt
from dragoman.schema.targets import ANTHROPIC, ANTHROPIC_STRICT, OPENAI
from dragoman.wire import openai_fields
from support import vendor_requests
from support.check_each import check_each
from support.dialect_cases import SENT, SMALLEST, Case, each, title
from support.sent_requests import ASKED, calls, parts, results, told, words

each_api = pytest.mark.parametrize("to", dialects.names())


def asked(case: Case) -> v.Request | None:
    body = f"{SMALLEST[case.dialect]},{case.text}}}" if case.kind == "request +" else case.text
    try:
        return case.api.read_request(body.encode("utf-8", "surrogateescape"))
    except ClientError:
        return None


def sent(request: v.Request, to: str) -> str:
    try:
        outgoing = dialects.get(to).write_request(request, "m")
    except UnsupportedError as e:
        return f"UnsupportedError: {e.message}"
    return "\n".join([*told(outgoing.warnings), outgoing.body.decode()])


@each(SENT)
def test_case_is_sent_as_expected(case: Case) -> None:
    body = case.text.strip()
    body = body if body.startswith("{") else f"{SMALLEST[case.kind.removeprefix('sent from ')]},{body}}}"
    request = dialects.get(case.kind.removeprefix("sent from ")).read_request(body)
    assert sent(request, case.dialect) == case.expected


@each([c for c in ASKED if asked(c)])
def test_request_is_unchanged_for_the_same_api(case: Case) -> None:
    request = asked(case)
    assert request is not None
    outgoing = case.api.write_request(request, request.model)
    if any(isinstance(part, v.UnknownPart) and not part.type for part in parts(request)):
        assert [w.code for w in outgoing.warnings] == ["request_adapted"]
        return
    assert outgoing.warnings == ()
    again = case.api.read_request(outgoing.body)
    extra = {name: raw for name, raw in request.extra.items() if name != "functions"}  # sent as tools
    assert again == replace(with_adapted_tools(request, case.dialect), extra=extra)
    assert case.api.write_request(again, request.model) == outgoing


@each_api
def test_request_for_every_api_is_complete_or_rejected(to: str, subtests: pytest.Subtests) -> None:
    """Texts, calls, results and tools arrive, or the request is rejected with the reason."""
    check_each(subtests, ASKED, partial(check_complete, to=to), title)


def check_complete(case: Case, to: str) -> None:
    request = asked(case)
    if request is None:
        return
    api = dialects.get(to)
    try:
        outgoing = api.write_request(request, "m")
    except UnsupportedError:
        assert to != case.dialect
        return
    arrived = api.read_request(outgoing.body)
    assert calls(arrived) == calls(request)
    assert results(arrived) == results(request)
    assert [t.parameters for t in arrived.tools if t.kind == "function"] == [
        t.parameters for t in with_adapted_tools(request, to).tools if t.kind == "function"
    ]
    for word in words(request):
        assert json.dumps(word, ensure_ascii=False)[1:-1] in outgoing.body.decode()
    if to != case.dialect:
        told = " ".join(w.message for w in outgoing.warnings)
        shared = openai_fields.SHARED | {"verbosity"} if {to, case.dialect} == openai_fields.APIS else frozenset()
        assert all(name in told for name in request.extra.keys() - shared if name not in TRANSLATED)


@each_api
def test_request_for_another_api_matches_vendor_types(to: str, subtests: pytest.Subtests) -> None:
    """Open-source servers validate requests with these types."""
    check_each(subtests, [case for case in ASKED if case.dialect != to], partial(check_types, to=to), title)


def check_types(case: Case, to: str) -> None:
    request = asked(case)
    if request is None:
        return
    try:
        outgoing = dialects.get(to).write_request(request, "m")
    except UnsupportedError:
        return
    body = json.loads(outgoing.body)
    body.pop("stream", None)
    of_vendor(to).validate_python(body)


@cache
def of_vendor(dialect: str) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(vendor_requests.params(dialect))


TRANSLATED = (
    "functions",
    "max_completion_tokens",
    "x-anthropic-billing-header",
    "output_config",
    "reasoning_effort",
    "response_format",
    "text",
    "thinking",
)
SCHEMA_TARGETS = {"anthropic_messages": ANTHROPIC, "openai_chat": OPENAI, "openai_responses": OPENAI}


def with_adapted_tools(request: v.Request, to: str) -> v.Request:
    """The request with its tools as this API accepts them; for its own API they are unchanged, except Anthropic's."""
    if to == request.dialect != "anthropic_messages":
        return request
    strict = {**SCHEMA_TARGETS, "anthropic_messages": ANTHROPIC_STRICT}
    schemas = [strict if tool.strict and to != request.dialect else SCHEMA_TARGETS for tool in request.tools]
    tools = [
        replace(tool, parameters=adapt(tool.parameters, of[to]).json)
        for tool, of in zip(request.tools, schemas, strict=True)
    ]
    return replace(request, tools=tuple(tools))


def test_call_arguments_are_sent_verbatim() -> None:
    call = v.ToolCall("a", "f", '{"n": 1.10, "n": 1e5}')
    request = v.Request("m", (v.Message("user", (v.Text("hi"),)), v.Message("assistant", (call,))))
    bodies = {to: dialects.get(to).write_request(request, "m").body for to in dialects.names()}
    chat, responses = (msgspec.json.decode(bodies[to]) for to in ("openai_chat", "openai_responses"))
    assert chat["messages"][1]["tool_calls"][0]["function"]["arguments"] == call.arguments
    assert responses["input"][1]["arguments"] == call.arguments
    assert b'"input":{"n": 1.10, "n": 1e5}' in bodies["anthropic_messages"]
