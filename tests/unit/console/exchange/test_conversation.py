"""The previous request of a conversation among the captures."""

import json

import pytest

from dragoman.console.exchange.conversation import find_previous

USER = {"role": "user", "content": "x"}
LARGE = "x" * 1024 * 1024


@pytest.mark.parametrize(("session", "content", "found"), [("", "short", True), ("", LARGE, False), ("s", LARGE, True)])
def test_large_request_is_read_only_for_its_session(session: str, content: str, found: bool) -> None:
    head = json.dumps({"path": "/v1/messages", "headers": {"x-session-id": session} if session else {}}).encode()
    before = json.dumps({"messages": [USER, {"role": "user", "content": content}]}).encode()
    files = {"request.json": head, "body": before}
    body = json.dumps({"messages": [USER]}).encode()
    previous = find_previous(head, body, ["req_1"], lambda id, name: files.get(name))
    assert (previous is not None) is found
