"""Tools of Messages that its vendor defines and the client runs (`bash`, `computer`), with any upstream server."""

import asyncio
import json
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import Server, server
from support.fake_upstream import whole as whole_body
from support.http_client import http_client
from support.scripted_backend import serving
from support.vendor_tools import blocks, body, messages, whole

PATH: Final = dialects.get("anthropic_messages").path
SCREEN: Final = {"name": "computer", "display_width_px": 1024, "display_height_px": 768}
CLICK: Final = {"action": "left_click", "coordinate": [5, 6]}
TOOLS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "bash_20241022": ({"name": "bash"}, {"command": "ls"}),
    "bash_20250124": ({"name": "bash"}, {"restart": True}),
    "text_editor_20241022": ({"name": "str_replace_editor"}, {"command": "undo_edit", "path": "/a"}),
    "text_editor_20250124": ({"name": "str_replace_editor"}, {"command": "view", "path": "/a"}),
    "text_editor_20250429": ({"name": "str_replace_based_edit_tool"}, {"command": "view", "path": "/a"}),
    "text_editor_20250728": (
        {"name": "str_replace_based_edit_tool"},
        {"command": "insert", "path": "/a", "insert_line": 0, "insert_text": "x"},
    ),
    "memory_20250818": (
        {"name": "memory"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
    ),
    "computer_20241022": (SCREEN, CLICK),
    "computer_20250124": (SCREEN, {"action": "scroll", "coordinate": [1, 2], "scroll_direction": "up"}),
    "computer_20251124": ({**SCREEN, "enable_zoom": True}, {"action": "zoom", "region": [0, 0, 5, 5]}),
}
"""By type: the other fields of a declaration, and arguments of a call that other versions may not have."""
OLDER: Final = {
    "text_editor_20250429": {"command": "undo_edit", "path": "/a"},
    "computer_20241022": {"action": "scroll"},
    "computer_20250124": {"action": "zoom"},
    "computer_20251124": {"action": "press"},
    "memory_20250818": {"command": "undo_edit"},
    "bash_20250124": {"command": 5, "restart": "perhaps"},
}
"""Arguments that the version does not have."""
OWN: Final = {"name": "read", "input_schema": {"type": "object", "properties": {}}}
each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WITH_IMAGES: Final = [(kind, mode) for kind in TOOLS for mode in ("native", "parse")]
WITHOUT: Final = [(kind, "prompt") for kind in TOOLS if not kind.startswith("computer")]


def calling(mode: str, name: str, arguments: Any) -> str:
    function = {"name": name, "arguments": json.dumps(arguments)}
    message: dict[str, Any] = {"tool_calls": [{"id": "c1", "type": "function", "function": function}], "content": None}
    if mode != "native":
        written = json.dumps({"name": name, "arguments": arguments})
        message = {"content": f"<tool_call>\n{written}\n</tool_call>"}
    finish = "tool_calls" if mode == "native" else "stop"
    return json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]})


def gateway(far: Server, mode: str) -> Gateway:
    config = HttpConfig(
        f"{far.url}/v1", models=("m",), tool_mode=mode, call_format="hermes", max_retries=0, auto_probe=False
    )
    return Gateway([HttpBackend("far", config, {})])


def declared(kind: str) -> dict[str, Any]:
    return {"type": kind, **TOOLS[kind][0]}


@each_stream
@pytest.mark.parametrize(("kind", "mode"), WITH_IMAGES + WITHOUT)
async def test_call_is_returned_as_tool_use_and_its_result_is_sent(kind: str, mode: str, stream: bool) -> None:
    fields, arguments = TOOLS[kind]
    play = whole_body(200, calling(mode, fields["name"], arguments))
    async with server(play) as far, serving(gateway(far, mode)) as (_, url), http_client(url) as http:
        (use,), reason = await messages(http, stream, tools=[declared(kind)])
        assert (use["type"], use["name"], use["input"], reason) == ("tool_use", fields["name"], arguments, "tool_use")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
        content: Any = [image] if kind.startswith("computer") else "done: 7"
        history = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": content}]},
        ]
        asked = body("anthropic_messages", stream, tools=[declared(kind)], messages=history)
        answer = await http.post(PATH, json=asked)
        assert answer.status_code == 200, answer.text
        first, second = (sent.decode() for _, _, sent in far.asked)
    assert "content_dropped" not in answer.headers.get("x-dragoman-warnings", "")
    assert ("iVBORw0KGgo=" if kind.startswith("computer") else "done: 7") in second
    assert ("1024 x 768" in first) == kind.startswith("computer")


@pytest.mark.parametrize("kind", sorted(OLDER))
async def test_arguments_of_another_version_are_reasked(kind: str) -> None:
    fields, arguments = TOOLS[kind]
    replies = [calling("native", fields["name"], each) for each in (OLDER[kind], arguments)]

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        await whole_body(200, replies[len(far.asked) - 1])(far, writer)

    async with server(play) as far, serving(gateway(far, "native")) as (_, url), http_client(url) as http:
        (use,), _ = await messages(http, False, tools=[declared(kind)])
    assert (use["input"], len(far.asked)) == (arguments, 2)


TOOLSET: Final = {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}, "key": {}}}
MEMBERS: Final[dict[str, dict[str, Any]]] = {
    "left_click": {"coordinate": [5, 6]},
    "screenshot": {},
    "scroll": {"scroll_direction": "up", "scroll_amount": 3},
    "left_click_drag": {"start_coordinate": [1, 2], "coordinate": [3, 4]},
    "hold_key": {"text": "ctrl", "duration": 2},
}


@each_stream
@pytest.mark.parametrize("mode", ["native", "parse"])
@pytest.mark.parametrize("name", sorted(MEMBERS))
async def test_members_of_computer_toolset_are_functions(name: str, mode: str, stream: bool) -> None:
    play = whole_body(200, calling(mode, name, MEMBERS[name]))
    async with server(play) as far, serving(gateway(far, mode)) as (_, url), http_client(url) as http:
        reply = await whole(http, "anthropic_messages", body("anthropic_messages", stream, tools=[TOOLSET, OWN]))
        (use,) = blocks(reply) if stream else reply["content"]
        assert (use["name"], use["toolset_name"], use["input"]) == (name, "computer", MEMBERS[name])
        history = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "done: 7"}]},
        ]
        asked = body("anthropic_messages", stream, tools=[TOOLSET, OWN], messages=history)
        answer = await http.post(PATH, json=asked)
        first, second = (json.loads(sent) for _, _, sent in far.asked)
    assert "content_dropped" not in answer.headers.get("x-dragoman-warnings", "")
    offered = [tool["function"]["name"] for tool in first["tools"]]
    assert offered[-1] == "read"
    assert (len(offered), "zoom" in offered, "key" in offered) == (17, False, True)
    assert "done: 7" in json.dumps(second["messages"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", [*TOOLS, "computer_toolset_20260801"])
async def test_messages_server_without_vendor_tools_gets_functions(kind: str, stream: bool) -> None:
    """As llama.cpp's Messages API, which would take them for functions without arguments."""
    tool = {**declared(kind), "cache_control": {"type": "ephemeral"}} if kind in TOOLS else TOOLSET
    play = whole_body(
        200, json.dumps({"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"})
    )
    async with server(play) as far:
        settings: dict[str, Any] = {"api": "anthropic_messages", "provider": "llama_cpp", "models": ("m",)}
        gateway = Gateway([HttpBackend("far", HttpConfig(far.url, max_retries=0, auto_probe=False, **settings), {})])
        async with serving(gateway) as (_, url), http_client(url) as http:
            await http.post(PATH, json=body("anthropic_messages", stream, tools=[tool]))
        sent = json.loads(far.asked[0][2])
    assert all("input_schema" in each and "type" not in each for each in sent["tools"])
    assert len(sent["tools"]) == (1 if kind in TOOLS else 16)
    assert kind not in TOOLS or (sent["tools"][0]["name"], "cache_control" in sent["tools"][0]) == (tool["name"], True)


async def test_own_tool_replaces_member_of_toolset() -> None:
    own = {"name": "wait", "input_schema": {"type": "object", "properties": {}}}
    play = whole_body(200, calling("native", "wait", {}))
    async with server(play) as far, serving(gateway(far, "native")) as (_, url), http_client(url) as http:
        (use,), _ = await messages(http, False, tools=[TOOLSET, own])
        sent = json.loads(far.asked[0][2])
    assert [tool["function"]["name"] for tool in sent["tools"]].count("wait") == 1
    assert "toolset_name" not in use


async def test_messages_server_gets_declaration_of_toolset() -> None:
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "screenshot", "toolset_name": "computer", "input": {}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 9},
    }
    async with server(whole_body(200, json.dumps(answer))) as far:
        config = HttpConfig(far.url, api="anthropic_messages", models=("m",), max_retries=0, auto_probe=False)
        backend = Gateway([HttpBackend("far", config, {}), HttpBackend("other", config, {})])
        async with serving(backend) as (_, url), http_client(url) as http:
            (use,), _ = await messages(http, False, tools=[OWN, TOOLSET])
        sent = json.loads(far.asked[0][2])
    assert sent["tools"] == [OWN, TOOLSET]
    assert use["toolset_name"] == "computer"


@each_stream
@pytest.mark.parametrize(
    ("path", "computer", "own"),
    [
        (PATH, declared("computer_20250124"), OWN),
        (PATH, TOOLSET, OWN),
        (dialects.get("openai_responses").path, {"type": "computer"}, {**OWN, "type": "function"}),
    ],
)
async def test_computer_needs_model_that_sees_images(
    path: str, computer: dict[str, Any], own: dict[str, Any], stream: bool
) -> None:
    """Next to other tools it is left out with a warning; alone or forced it is rejected by name."""
    api = "anthropic_messages" if path == PATH else "openai_responses"
    play = whole_body(200, calling("prompt", "read", {}))
    async with server(play) as far, serving(gateway(far, "prompt")) as (_, url), http_client(url) as http:
        both = await http.post(path, json=body(api, stream, tools=[computer, own]))
        alone = await http.post(path, json=body(api, stream, tools=[computer]))
        name = "screenshot" if computer is TOOLSET else "computer"
        choice = {"type": "tool", "name": name} if path == PATH else {"type": "computer"}
        forced = await http.post(path, json=body(api, stream, tools=[computer, own], tool_choice=choice))
    assert both.status_code == 200
    assert f"content_dropped: {computer['type']}" in both.headers["x-dragoman-warnings"]
    assert len(far.asked) == 1
    assert computer["type"] not in far.asked[0][2].decode()
    for rejected in (alone, forced):
        assert rejected.status_code == 400
        assert computer["type"] in rejected.json()["error"]["message"]
