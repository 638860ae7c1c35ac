"""A member that is null counts as absent: some clients serialize all members of their request models.

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
from support.check_each import check_each
from support.dialect_cases import SMALLEST
from support.recorded_requests import BY_PATH, RECORDED
from support.sent_requests import ASKED, parts

EVENTS = (
    *(ev.Start("1", "m", 7), ev.ToolCallStart(0, "call_a", "f"), ev.ToolCallDelta(0, "{}"), ev.ToolCallEnd(0)),
    ev.Finish("stop"),
)
LONG_STRING = "x" * 20_000
MAX_ERROR_CHARS = 2_000
MAX_PER_CLIENT = 2
"""The maximum number of requests of one client; later ones have the same shapes."""


def bodies(recorded: bool = True) -> Iterator[tuple[str, str, str]]:
    for name, sent in RECORDED.items():
        if recorded and int(name.rsplit(" ", 1)[1]) <= MAX_PER_CLIENT:
            yield name, BY_PATH[sent.path].name, sent.body.decode()
    for case in ASKED:
        whole = f"{SMALLEST[case.dialect]},{case.text}}}" if case.kind == "request +" else case.text
        yield f"{case.dialect}: {case.title}", case.dialect, whole


def kinds(hint: Any) -> Iterator[Any]:
    """The alternatives of a type, without wrappers such as `Required`."""
    if get_origin(hint) in (typing.Union, *vendor_requests.WRAPPERS):
        for inner in get_args(hint):
            yield from kinds(inner)
    else:
        yield hint


def is_of(value: dict[str, Any], hint: Any) -> bool:
    known = get_type_hints(hint)
    literals = {name: get_args(of) for name, of in known.items() if get_origin(of) is Literal and name in value}
    return hint.__required_keys__ <= value.keys() and all(value[name] in of for name, of in literals.items())


def with_nulls(value: Any, hint: Any) -> Any:
    """The value with a null for each optional member of its type that it lacks."""
    if isinstance(value, list):
        lists = (get_args(kind)[0] for kind in kinds(hint) if get_args(kind) and get_origin(kind) is not dict)
        inner = next((kind for kind in lists), object)
        return [with_nulls(each, inner) for each in value]
    if not isinstance(value, dict):
        return value
    found = next((kind for kind in kinds(hint) if is_typeddict(kind) and is_of(value, kind)), None)
    if found is None:
        return value
    members = get_type_hints(found)
    said = {name: with_nulls(each, members.get(name, object)) for name, each in value.items()}
    return {**said, **{name: None for name in sorted(found.__optional_keys__) if name not in said}}


def without_nulls(value: Any) -> Any:
    """The value without members that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def answered(api: str, request: v.Request) -> list[Any]:
    writer = dialects.get(api).writer(request)
    written = b"".join(map(writer.feed, EVENTS)).decode()
    return [without_nulls(json.loads(line[6:])) for line in written.splitlines() if line.startswith("data: {")]


def sent(to: str, request: v.Request) -> Any:
    try:
        outgoing = dialects.get(to).write_request(request, "m")
    except ClientError as error:
        return error.message
    return without_nulls(json.loads(outgoing.body)), [warning.label for warning in outgoing.warnings]


@pytest.mark.parametrize("api", dialects.names())
def test_null_member_counts_as_absent(api: str, subtests: pytest.Subtests) -> None:
    of_api = [each for each in bodies() if each[1] == api]
    check_each(subtests, of_api, check_nulls_are_absent, lambda each: each[0])


def check_nulls_are_absent(each: tuple[str, str, str]) -> None:
    _, api, body = each
    try:
        dialects.get(api).read_request(body)
    except ClientError:
        return
    # `stream` belongs to one of two request types.
    plain = {name: value for name, value in json.loads(body).items() if name != "stream"}
    request = dialects.get(api).read_request(json.dumps(plain))
    nulls = json.dumps(with_nulls(plain, vendor_requests.params(api)))
    again = dialects.get(api).read_request(nulls)
    assert nulls.count("null") > body.count("null")
    if any(isinstance(part, v.UnknownPart) for part in parts(request)):  # their text is their JSON, verbatim
        return
    assert answered(api, again) == answered(api, request)
    for to in dialects.names():
        assert sent(to, again) == sent(to, request)


@pytest.mark.parametrize("stream", [False, True])
def test_null_functions_do_not_change_response_format(stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "functions": None, "tools": [tool]}
    request = dialects.get("openai_chat").read_request(json.dumps({**body, "stream": stream}))
    assert "tool_calls" in str(answered("openai_chat", request))


def long_strings(value: Any) -> Iterator[Any]:
    """Yields a copy of the value for each of its strings, in which that string is long."""
    if isinstance(value, dict):
        yield from ({**value, name: made} for name, each in value.items() for made in long_strings(each))
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from ([*value[:n], made, *value[n + 1 :]] for made in long_strings(each))
    elif isinstance(value, str):
        yield LONG_STRING


@pytest.mark.parametrize("api", dialects.names())
def test_error_messages_quote_only_part_of_the_request(api: str) -> None:
    for _, of, body in bodies(recorded=False):
        asked = json.loads(body) if of == api and body.lstrip().startswith("{") and is_json(body) else {}
        for made in long_strings(asked):
            for told in refusals(api, json.dumps(made)):
                assert len(told) < MAX_ERROR_CHARS, told[:300]


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
