"""`dragoman route explain`: which rule applies, why, and the backends in order."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SETTINGS = """
[upstreams.one]
url = "http://127.0.0.1:9/v1"
models = ["big"]
[upstreams.two]
url = "http://127.0.0.1:9/v1"
models = ["small"]
[[routes]]
name = "background"
agent = "claude-code"
role = ["background", "subagent"]
use = ["small", "big"]
[[routes]]
model = "claude-*"
key = "alice"
use = "one/big"
"""
BODY = {"model": "claude-opus-9", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
AGENT = ["--header", "User-Agent: claude-cli/2.1.329 (x)", "--header", "x-claude-code-agent-id: 1"]


REPLICAS = """
[upstreams.one]
url = "http://127.0.0.1:9/v1"
models = ["big"]
[upstreams.two]
url = "http://127.0.0.1:9/v1"
models = ["big"]
[[routes]]
balance = "prefix"
"""


def explain(
    tmp_path: Path, *args: str, body: str = json.dumps(BODY), settings: str = SETTINGS
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "config.toml").write_text(settings)
    (tmp_path / "request.json").write_text(body)
    command = [sys.executable, "-m", "dragoman", "route", "explain", str(tmp_path / "request.json")]
    env = {**os.environ, "HOME": str(tmp_path)}
    return subprocess.run(
        [*command, "--config", str(tmp_path / "config.toml"), *args], capture_output=True, text=True, env=env
    )


def test_explanation_has_conditions_and_backends(tmp_path: Path) -> None:
    did = explain(tmp_path, "--key", "alice")
    assert did.returncode == 0, did.stderr
    assert did.stdout.splitlines() == [
        "client: key alice",
        "requested model: claude-opus-9",
        "route background does not apply",
        "  ✗ agent: expected claude-code, got unknown",
        "  ✗ role: expected background or subagent, got unknown",
        "route 2 applies",
        "  ✓ key: expected alice, got alice",
        "  ✓ model: expected claude-*, got 'claude-opus-9'",
        "  uses one/big (order)",
        "1. big at one",
    ]


def test_explanation_as_json(tmp_path: Path) -> None:
    did = explain(tmp_path, *AGENT, "--json", "--api", "anthropic_messages")
    told: dict[str, Any] = json.loads(did.stdout)
    assert told["client"] == {"agent": "claude-code", "role": "subagent"}
    assert [(each["route"], each["applies"]) for each in told["routes"]] == [("background", True)]
    assert told["targets"] == [{"upstream": "two", "model": "small"}, {"upstream": "one", "model": "big"}]


def test_replicas_are_in_the_order_for_a_new_conversation(tmp_path: Path) -> None:
    orders = {explain(tmp_path, body=body(text), settings=REPLICAS).stdout for text in ("hi", "hi", "a", "b", "c")}
    lines = [order.splitlines() for order in orders]
    assert {tuple(each[2:5]) for each in lines} == {
        (
            "route 1 applies",
            "  uses the requested model (prefix)",
            "  the order of a new conversation while no upstream is busy:",
        )
    }
    assert {tuple(each[5:]) for each in lines} == {
        ("1. big at one", "2. big at two"),
        ("1. big at two", "2. big at one"),
    }


def body(text: str) -> str:
    return json.dumps({**BODY, "model": "big", "messages": [{"role": "user", "content": text}]})


def test_request_that_nothing_serves(tmp_path: Path) -> None:
    did = explain(tmp_path)
    assert did.returncode == 1
    assert "no route applies: the requested model is used" in did.stdout
    assert "error: unknown model 'claude-opus-9'" in did.stdout


@pytest.mark.parametrize(
    ("args", "body", "message"),
    [
        (
            ["--header", "x"],
            json.dumps(BODY),
            "expected a header such as 'user-agent: claude-cli/2.1', got 'x' - at --header",
        ),
        ([], "[]", "expected a request of one of the APIs, got none - "),
    ],
)
def test_wrong_input_is_reported(args: list[str], body: str, message: str, tmp_path: Path) -> None:
    did = explain(tmp_path, *args, body=body)
    assert did.returncode == 2
    assert message in did.stderr


def test_explanation_names_the_model_that_is_re_asked(tmp_path: Path) -> None:
    settings = f'{SETTINGS}second_opinion = "small"\n'
    did = explain(tmp_path, "--key", "alice", settings=settings)
    assert "  re-asks small about a response that is not valid" in did.stdout.splitlines()
