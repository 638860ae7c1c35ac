"""The agent of a captured exchange, if the catalogue does not know its `user-agent`."""

import json

import pytest

from dragoman.console.api import TrafficRow
from dragoman.console.exchange.exchange_view import with_product
from dragoman.core.messages import Message, Request, Text
from dragoman.identify.client import identify_client
from dragoman.server.capture.load import LoadedCapture

ROW = TrafficRow(id="req_1", began_s=0.0, state="done")


@pytest.mark.parametrize(
    ("header", "expected"),
    [("myagent/1", "myagent"), ("myagent", "myagent"), ("", ""), ("a b", ""), ("x" * 33, ""), ("<b>/1", "")],
)
def test_product_of_unknown_agent_is_shown(header: str, expected: str) -> None:
    capture = LoadedCapture("c", {"request.json": json.dumps({"headers": {"user-agent": header}}).encode()})
    assert with_product(ROW, capture).agent == expected
    assert with_product(ROW, None) is ROW


def test_requests_of_the_console_have_its_name() -> None:
    request = Request("m", (Message("user", (Text("hi"),)),))
    assert identify_client({"user-agent": "dragoman-console"}, request).agent == "console"
