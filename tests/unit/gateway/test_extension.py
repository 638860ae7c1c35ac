"""Passthrough of bodies with and without Dragoman's own field."""

import json
from typing import Any, cast

import pytest

from dragoman import dialects
from dragoman.core.backend import ExchangeContext, PassthroughResponse
from dragoman.core.messages import Message, Request, Text
from dragoman.gateway.gateway import Gateway
from support.scripted_backend import Scripted, plain

RESPONSE = cast("PassthroughResponse", object())


class Passing(Scripted):
    """A backend that forwards each body."""

    def passthrough(self, request: Request, body: bytes, name: str, context: ExchangeContext) -> PassthroughResponse:
        return RESPONSE


def passes(api: str, body: dict[str, Any]) -> bool:
    raw = json.dumps(body).encode()
    request = dialects.get(api).read_request(raw)
    return Gateway([Passing(plain)]).passthrough(request, raw, ExchangeContext("1", 0, iter("ab").__next__)) is RESPONSE


def written(api: str, text: str) -> dict[str, Any]:
    request = Request("m", (Message("user", (Text(text),)),), max_tokens=9, store=False)
    return {"store": False} | json.loads(dialects.get(api).write_request(request, "m").body)


@pytest.mark.parametrize("api", dialects.names())
def test_text_with_the_name_of_the_field_is_passed_through(api: str) -> None:
    assert passes(api, written(api, "dragoman"))


@pytest.mark.parametrize("field", [{"steps": "off"}, {"steps": None}, {}, None])
@pytest.mark.parametrize("api", dialects.names())
def test_body_with_the_field_is_not_passed_through(api: str, field: object) -> None:
    assert not passes(api, written(api, "Hello!") | {"dragoman": field})


def test_escaped_name_of_the_field_is_found() -> None:
    raw = json.dumps(written("openai_chat", "Hello!") | {"dragoman": None}).replace('"dragoman"', r'"drago\u006dan"')
    assert dialects.get("openai_chat").read_request(raw).has_extension
