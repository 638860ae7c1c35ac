"""Which agent sent a request, in which role, in which session."""

import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.catalog import clients
from dragoman.core.client import ANONYMOUS, ClientFacts, Permissions
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Message, Request, Text
from dragoman.identify.client import SESSION_LIMIT_CHARS, identify_client
from support.check_each import check_each
from support.paths import DATA

CASES: list[dict[str, Any]] = json.loads((DATA / "client_facts.json").read_text())
SYSTEM = ("You are a helpful assistant.",)


def asked(*system: str, user: str = "hi", model: str = "m") -> Request:
    instructions = [Message("system", tuple(Text(text) for text in system))] if system else []
    return Request(model, (*instructions, Message("user", (Text(user),))))


def test_request_of_known_client_is_recognized(subtests: pytest.Subtests) -> None:
    """The cases have headers and the shape of bodies that the real programs sent."""

    def check(case: dict[str, Any]) -> None:
        request = dialects.get(case["api"]).read_request(json.dumps(case["body"]).encode())
        facts = identify_client(case["headers"], request)
        assert {"agent": facts.agent, "role": facts.role, "session": facts.session} == case["expected"]

    check_each(subtests, CASES, check, lambda case: case["title"])


def test_each_role_of_catalogue_has_a_case() -> None:
    known = {(row.name, role.role) for row in clients.clients() for role in row.roles}
    assert known <= {(case["expected"]["agent"], case["expected"]["role"]) for case in CASES}
    assert set(clients.roles()) == {role for _, role in known} | {"main"}


def test_other_facts_are_kept() -> None:
    known = ClientFacts(key="alice", permissions=Permissions(models=("m",)))
    assert identify_client({}, asked(), known) is known
    assert identify_client({"user-agent": "curl/8.1"}, asked(), known, "7") == replace(
        known, agent="curl", exchange="7"
    )
    assert identify_client({}, asked()) is ANONYMOUS


@pytest.mark.parametrize("agent", ["", "/", " ", "Mozilla/5.0 (X11)", "x" * 10_000, "claude-cli" * 9, "\xff\xfe"])
def test_unknown_user_agent_has_no_name(agent: str) -> None:
    assert identify_client({"user-agent": agent}, asked(*SYSTEM)) is ANONYMOUS


def test_long_session_is_ignored() -> None:
    agent = {"user-agent": "claude-cli/2.1.329 (external, cli)"}
    named = "s" * SESSION_LIMIT_CHARS
    assert identify_client({**agent, "x-claude-code-session-id": named}, asked()).session == named
    assert identify_client({**agent, "x-claude-code-session-id": named + "s"}, asked()).session == ""


def test_text_far_from_start_is_not_searched() -> None:
    near, far = asked("You are Hermes Agent"), asked("x" * 5000 + "You are Hermes Agent")
    assert [identify_client({}, request).agent for request in (near, far)] == ["hermes", ""]


def test_text_of_user_does_not_select_agent() -> None:
    assert identify_client({}, asked(*SYSTEM, user="You are Hermes Agent")) is ANONYMOUS


def test_cost_does_not_depend_on_prompt() -> None:
    def seconds(scale: int) -> float:
        long = "You are Hermes " * scale
        messages = [Message("user", (Text(long),))] * scale
        request = Request("m", (Message("system", (Text(long),) * scale), *messages))
        headers = {"user-agent": "x" * scale, "session-id": "s" * scale}
        began_s = time.process_time()
        for _ in range(200):
            identify_client(headers, request)
        return time.process_time() - began_s

    seconds(1)
    assert min(seconds(2000) for _ in range(3)) < 20 * min(seconds(1) for _ in range(3))


def test_invalid_catalogue_is_rejected() -> None:
    with pytest.raises(ConfigError, match="clients file"):
        clients.read(b'[[client]]\nname = "x"')
