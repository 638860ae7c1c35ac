"""What the exchange page does: replay, edit and resend, test cases, code that runs, redacted bundles."""

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from typing import Any

import pytest

from dragoman import formats
from dragoman.api.case_file import parse_cases, show_events
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.keys import KeyConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.keys.ring import KeyRing
from support.capturing import TOOLS, says
from support.console import served_console
from support.fake_upstream import RESPONSES, ask, server
from support.gateway import CHAT, MESSAGES
from support.scripted_backend import body, plain
from support.served_exchanges import console_of, text_of, view_of

SECRET = "the-secret-of-the-boss"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
BROKEN = CALL.replace('"Paris"}}', '"Paris",')


@pytest.mark.parametrize(("chunking", "seed"), [("recorded", 0), ("chars", 0), ("random", 7)])
async def test_replay_reproduces_a_failing_parse(chunking: str, seed: int) -> None:
    async with console_of(says(*re.findall(r"(?s).{1,7}", BROKEN)), tool_mode="parse", call_format="hermes") as (
        console,
        _,
    ):
        answer = await ask(console.url, CHAT, True, tools=TOOLS, tool_choice="auto")
        id = answer.headers["x-request-id"]
        before = await view_of(console, id)
        replayed = (
            await console.change("POST", f"/exchanges/{id}/replay", {"chunking": chunking, "seed": seed})
        ).json()
    assert all(stage["same"] for stage in replayed["stages"])
    assert len(replayed["stages"]) == 9  # the model was re-asked
    assert "malformed_arguments" in {note["code"] for note in replayed["view"]["notes"]}
    assert text_of(replayed["view"], "model", "text") == text_of(before, "model", "text")


async def test_replay_shows_what_differs() -> None:
    async with console_of(says("hi")) as (console, _):
        id = (await ask(console.url, CHAT, True)).headers["x-request-id"]
        await view_of(console, id)
        captures = console.app.snapshot.captures
        assert captures is not None
        [name] = captures.names()
        files = captures.read(name)
        assert files is not None
        files["1/sent-1.json"] = files["1/sent-1.json"].replace(b'"m"', b'"another"')
        replayed = (await console.change("POST", f"/exchanges/{id}/replay", {})).json()
    differs = {stage["name"]: stage["diff"] for stage in replayed["stages"] if not stage["same"]}
    assert set(differs) == {"sent 1"}
    assert '- "model": "another"' in differs["sent 1"]
    assert '+ "model": "m"' in differs["sent 1"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [True, False])
async def test_edited_request_is_sent_and_captured(path: str, stream: bool) -> None:
    async with console_of(says("It is ", "sunny."), tool_mode="parse", call_format="hermes") as (console, far):
        first = await ask(console.url, path, stream)
        edited = (await console.get(f"/exchanges/{first.headers['x-request-id']}/body")).json()
        edited["input" if path == RESPONSES else "messages"] = [{"role": "user", "content": "edited"}]
        answer = await console.change("POST", "/send", {"path": path, "body": edited})
        assert answer.status_code == 200
        assert ("event-stream" in answer.headers["content-type"]) is stream
        assert "sunny" in answer.text
        view = await view_of(console, answer.headers["x-request-id"])
    assert "edited" in text_of(view, "client", "message:0")
    assert b"edited" in far.asked[-1][2]
    assert "sunny" in text_of(view, "reply")


async def test_request_is_sent_to_another_model_or_upstream() -> None:
    async with server(says("from one")) as one, server(says("from other")) as other:
        backends = [
            HttpBackend(name, HttpConfig(f"{far.url}/v1", models=("m", name), max_retries=0, auto_probe=False), {})
            for name, far in (("one", one), ("other", other))
        ]
        async with served_console(Gateway(backends)) as console:
            asked = {"path": CHAT, "body": body(False) | {"model": "m"}}
            plainly, pinned, model = [
                await console.change("POST", "/send", asked | more)
                for more in ({}, {"upstream": "other"}, {"model": "other"})
            ]
            wrong = await console.change("POST", "/send", asked | {"upstream": "otter"})
            unserved = await console.change("POST", "/send", asked | {"upstream": "other", "model": "one"})
    assert ["from one" in plainly.text, "from other" in pinned.text, "from other" in model.text] == [True] * 3
    assert wrong.status_code == 404
    assert "did you mean 'other'" in wrong.text or "other" in wrong.json()["error"]["message"]
    assert unserved.status_code == 404


async def test_key_of_the_session_limits_what_is_sent() -> None:
    async with server(says("from one")) as one, server(says("from other")) as other:
        backends = [
            HttpBackend(name, HttpConfig(f"{far.url}/v1", models=("m",), max_retries=0, auto_probe=False), {})
            for name, far in (("other", other), ("one", one))
        ]
        keys = KeyRing({"boss": KeyConfig(secret=SECRET, admin=True, upstreams=("one",))})
        async with served_console(Gateway(backends), keys=keys) as console:
            order = {"path": CHAT, "body": body(False) | {"model": "m"}}
            anonymous = await console.change("POST", "/send", order)
            allowed = await console.change("POST", "/send", order, **{"x-api-key": SECRET})
            refused = await console.change("POST", "/send", order | {"upstream": "other"}, **{"x-api-key": SECRET})
    assert (anonymous.status_code, allowed.status_code, refused.status_code) == (401, 200, 403)
    assert "from one" in allowed.text


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"path": "/v1/embeddings", "body": {}}, "at path"),
        ({"path": CHAT, "body": [1]}, "at body"),
        ({"path": CHAT}, "body"),
    ],
)
async def test_invalid_order_is_refused(order: dict[str, Any], error: str) -> None:
    async with served_console(plain) as console:
        answer = await console.change("POST", "/send", order)
    assert answer.status_code == 400
    assert error in answer.json()["error"]["message"]


async def test_request_that_is_sent_while_captures_are_off_is_not_kept() -> None:
    async with served_console(plain) as console:
        answer = await console.change("POST", "/send", {"path": CHAT, "body": body()})
        assert answer.status_code == 200
        code = await console.get(f"/exchanges/{answer.headers['x-request-id']}/body")
    assert code.status_code == 404


@pytest.mark.parametrize("text", [CALL, BROKEN, f"Look:\n{CALL}"])
async def test_case_file_has_the_events_of_the_text(text: str) -> None:
    async with console_of(says(text), tool_mode="parse", call_format="hermes") as (console, _):
        answer = await ask(console.url, CHAT, True, tools=TOOLS, tool_choice="auto")
        saved = await console.change("POST", f"/exchanges/{answer.headers['x-request-id']}/case", {})
    assert saved.status_code == 200, saved.text
    name = f"hermes-{answer.headers['x-request-id']}.txt"
    assert saved.headers["content-disposition"] == f'attachment; filename="{name}"'
    case, *_ = parse_cases(saved.text, formats.get("hermes"))
    assert case.text == text
    assert case.expected == show_events(case.read([*text]))
    assert case.expected


async def test_text_that_no_case_file_can_contain_is_refused() -> None:
    async with console_of(says("one\n---\n# two"), tool_mode="parse", call_format="hermes") as (console, _):
        answer = await ask(console.url, CHAT, True)
        saved = await console.change("POST", f"/exchanges/{answer.headers['x-request-id']}/case", {})
    assert saved.status_code == 400
    assert "case file" in saved.json()["error"]["message"]


async def test_bundle_has_no_content() -> None:
    async with console_of(says(f"Mallorca {CALL}"), tool_mode="parse", call_format="hermes") as (console, _):
        answer = await ask(console.url, CHAT, True, tools=TOOLS)
        saved = await console.get(f"/exchanges/{answer.headers['x-request-id']}/bundle")
    with zipfile.ZipFile(io.BytesIO(saved.content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert "summary.json" in files
    assert not [name for name, data in files.items() if b"Mallorca" in data]


PROGRAMS = [
    ("curl", CHAT),
    pytest.param("curl", RESPONSES, marks=pytest.mark.every),
    ("python-openai", CHAT),
    pytest.param("python-openai", RESPONSES, marks=pytest.mark.every),
    pytest.param("python-openai", MESSAGES, marks=pytest.mark.every),
    ("python-anthropic", MESSAGES),
    pytest.param("python-anthropic", CHAT, marks=pytest.mark.every),
]


@pytest.mark.parametrize(("language", "path"), PROGRAMS)
async def test_code_runs(language: str, path: str) -> None:
    """Each program is run, and its request is the captured one."""
    tricky = "It's \"quoted\" $HOME `date` \\n\nJSON\n'''"
    async with console_of(says("hi there"), tool_mode="prompt", call_format="hermes") as (console, far):
        messages = {"messages": [{"role": "user", "content": tricky}], "max_tokens": 9}
        member = {"input": tricky} if path == RESPONSES else messages
        first = await console.client.post(path, json={"model": "m", **member})
        assert first.status_code == 200
        code = await console.get(f"/exchanges/{first.headers['x-request-id']}/code?language={language}")
        assert code.status_code == 200, code.text
        before = far.asked[-1][2]
        run = ["sh", "-c", code.text] if language == "curl" else [sys.executable, "-c", code.text]
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, env=environment, timeout=60)
        assert "hi there" in done.stdout, (done.stderr, code.text)
        sent, expected = json.loads(far.asked[-1][2]), json.loads(before)
    assert sent["messages"] == expected["messages"]


async def test_typescript_has_the_request_as_json() -> None:
    async with console_of(says("hi there")) as (console, _):
        first = await ask(console.url, MESSAGES, True)
        code = await console.get(f"/exchanges/{first.headers['x-request-id']}/code?language=typescript")
        wrong = await console.get(f"/exchanges/{first.headers['x-request-id']}/code?language=cobol")
    assert 'import Anthropic from "@anthropic-ai/sdk";' in code.text
    found = re.search(r"body: any = (\{.*?\n\});", code.text, re.S)
    assert found is not None
    assert json.loads(found[1])["messages"] == [{"role": "user", "content": "hi"}]
    assert "for await" in code.text
    assert wrong.status_code == 400
