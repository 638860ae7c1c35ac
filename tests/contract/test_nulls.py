"""A member that is null counts as absent: clients send such members that write out their request models whole.

Requests of real clients and of the case files get a null for every optional member that the vendor's own types have
and that the request lacks, at every depth.
"""

import json
import typing
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict

from dragoman import dialects
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.errors import ClientError
from support import vendor_requests
from support.dialect_cases import SMALLEST
from support.recorded_requests import BY_PATH, RECORDED
from support.sent_requests import ASKED, parts

EVENTS = (
    *(ev.Start("1", "m", 7), ev.ToolCallStart(0, "call_a", "f"), ev.ToolCallDelta(0, "{}"), ev.ToolCallEnd(0)),
    ev.Finish("stop"),
)
LONG = "x" * 20_000
LONGEST_ERROR = 2_000
RECORDED_EACH = 2
"""Requests of one client; later ones have the same shapes."""


def bodies(recorded: bool = True) -> Iterator[tuple[str, str, str]]:
    for name, sent in RECORDED.items():
        if recorded and int(name.rsplit(" ", 1)[1]) <= RECORDED_EACH:
            yield name, BY_PATH[sent.path].name, sent.body.decode()
    for case in ASKED:
        whole = f"{SMALLEST[case.dialect]},{case.text}}}" if case.kind == "request +" else case.text
        yield f"{case.dialect}: {case.title}", case.dialect, whole


def kinds(hint: Any) -> Iterator[Any]:
    """The types that a value of this one may be of, without what stands around them."""
    if get_origin(hint) in (typing.Union, *vendor_requests.WRAPPERS):
        for inner in get_args(hint):
            yield from kinds(inner)
    else:
        yield hint


def is_of(value: dict[str, Any], hint: Any) -> bool:
    known = get_type_hints(hint)
    literals = {name: get_args(of) for name, of in known.items() if get_origin(of) is Literal and name in value}
    return hint.__required_keys__ <= value.keys() and all(value[name] in of for name, of in literals.items())


def filled(value: Any, hint: Any) -> Any:
    """The value with a null for each optional member that its type has and it lacks."""
    if isinstance(value, list):
        lists = (get_args(kind)[0] for kind in kinds(hint) if get_args(kind) and get_origin(kind) is not dict)
        inner = next((kind for kind in lists), object)
        return [filled(each, inner) for each in value]
    if not isinstance(value, dict):
        return value
    found = next((kind for kind in kinds(hint) if is_typeddict(kind) and is_of(value, kind)), None)
    if found is None:
        return value
    members = get_type_hints(found)
    said = {name: filled(each, members.get(name, object)) for name, each in value.items()}
    return {**said, **{name: None for name in sorted(found.__optional_keys__) if name not in said}}


def bare(value: Any) -> Any:
    """The value without members that are null."""
    if isinstance(value, dict):
        return {name: bare(each) for name, each in value.items() if each is not None}
    return [bare(each) for each in value] if isinstance(value, list) else value


def answered(api: str, request: v.Request) -> list[Any]:
    writer = dialects.get(api).writer(request)
    written = b"".join(map(writer.feed, EVENTS)).decode()
    return [bare(json.loads(line[6:])) for line in written.splitlines() if line.startswith("data: {")]


def sent(to: str, request: v.Request) -> Any:
    try:
        outgoing = dialects.get(to).write_request(request, "m")
    except ClientError as error:
        return error.message
    return bare(json.loads(outgoing.body)), [warning.label for warning in outgoing.warnings]


@pytest.mark.parametrize(("api", "body"), [pytest.param(api, body, id=name) for name, api, body in bodies()])
def test_null_counts_as_absent(api: str, body: str) -> None:
    try:
        dialects.get(api).read_request(body)
    except ClientError:
        return
    # `stream` is of one type of request or another.
    plain = {name: value for name, value in json.loads(body).items() if name != "stream"}
    request = dialects.get(api).read_request(json.dumps(plain))
    nulls = json.dumps(filled(plain, vendor_requests.params(api)))
    again = dialects.get(api).read_request(nulls)
    assert nulls.count("null") > body.count("null")
    if any(isinstance(part, v.UnknownPart) for part in parts(request)):  # whose text is their JSON, as it came
        return
    assert answered(api, again) == answered(api, request)
    for to in dialects.names():
        assert sent(to, again) == sent(to, request)


@pytest.mark.parametrize("stream", [False, True])
def test_functions_that_are_null_do_not_shape_the_answer(stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "functions": None, "tools": [tool]}
    request = dialects.get("openai_chat").read_request(json.dumps({**body, "stream": stream}))
    assert "tool_calls" in str(answered("openai_chat", request))


def long_strings(value: Any) -> Iterator[Any]:
    """The value once for each string in it, with that one made long."""
    if isinstance(value, dict):
        yield from ({**value, name: made} for name, each in value.items() for made in long_strings(each))
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from ([*value[:n], made, *value[n + 1 :]] for made in long_strings(each))
    elif isinstance(value, str):
        yield LONG


@pytest.mark.parametrize("api", dialects.names())
def test_errors_quote_little_of_what_came(api: str) -> None:
    for _, of, body in bodies(recorded=False):
        asked = json.loads(body) if of == api and body.lstrip().startswith("{") and is_json(body) else {}
        for made in long_strings(asked):
            for told in refusals(api, json.dumps(made)):
                assert len(told) < LONGEST_ERROR, told[:300]


def is_json(text: str) -> bool:
    try:
        return bool(json.loads(text))
    except ValueError:
        return False


def refusals(api: str, body: str) -> Iterator[str]:
    try:
        request = dialects.get(api).read_request(body)
    except ClientError as error:
        yield error.message
        return
    for to in dialects.names():
        told = sent(to, request)
        if isinstance(told, str):
            yield told
