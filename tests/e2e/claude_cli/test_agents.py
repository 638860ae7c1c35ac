"""Real agents whose model is the real Claude CLI: they run its tool calls and return the results."""

import base64
import json
import re
from pathlib import Path

import pytest
from bench import offline

from support import agents
from support.agents import NOTES, PROMPT
from support.claude_gateway import Chain, Says, Seen, Turns, behind_claude, instructed, offered, spelled, text
from support.claude_images import IMAGE, PICTURE
from support.mcp_accounting import CALLS, RESULTS, SERVER

LAST = "It holds pomegranate."


def client_home(tmp_path: Path) -> Path:
    home = tmp_path / "home-of-the-client"
    home.mkdir()
    return home


def assert_requests_unchanged(chain: Chain) -> None:
    """Asserts that each request reached the model with the client's instructions and tools."""
    for seen, posted in zip(chain.seen(), chain.posted, strict=True):
        assert seen.system == instructed(posted)
        assert len(seen.system) > 1000
        theirs = offered(posted)
        assert {name: seen.tools.get(spelled(name)) for name in theirs} == theirs


def results(chain: Chain) -> list[str]:
    """The tool results that the model got, in the order of its calls."""
    last = chain.seen()[-1]
    found = {block["tool_use_id"]: block["content"] for block in last.blocks("tool_result")}
    return [found.pop(block["id"]) for block in last.blocks("tool_use")]


@pytest.mark.ran("Hermes Agent", "claude CLI")
@pytest.mark.parametrize("mode", ["codex_responses", "anthropic_messages"])
async def test_hermes_tool_round_trip_on_claude_cli(mode: str, tmp_path: Path) -> None:
    """Reads two files in one turn, one of which is missing; the third API is tested with an MCP server."""
    home = client_home(tmp_path)
    folder = agents.folder_of(home)
    calls: list[tuple[str, dict[str, object]]] = [
        ("read_file", {"path": str(folder / name)}) for name in ("notes.txt", "missing.txt")
    ]
    async with behind_claude(Turns([Says("Let me look.", calls), Says(LAST)]), tmp_path, "native") as chain:
        base = chain.url if mode == "anthropic_messages" else f"{chain.url}/v1"
        assert await agents.hermes(base, home, folder, mode, "-z", PROMPT, "-t", "file") == LAST
    assert_requests_unchanged(chain)
    notes, missing = map(json.loads, results(chain))
    assert notes["content"].startswith(f"1|{NOTES}")
    assert missing["error"].startswith("File not found: ")
    assert chain.seen()[-1].said[0] == ("user", [text(PROMPT)])


@pytest.mark.ran("Hermes Agent", "claude CLI")
async def test_hermes_mcp_round_trip_on_claude_cli(tmp_path: Path) -> None:
    """Hermes prefixes the tool names itself, and adds four tools for other MCP features."""
    home = client_home(tmp_path)
    folder = agents.folder_of(home)
    servers = {"fwbg": {"command": str(offline.agent("python")), "args": [str(SERVER)]}}
    named = [("mcp__fwbg__" + re.sub(r"\W", "_", name), arguments) for name, arguments in CALLS]
    async with behind_claude(Turns([Says(calls=named), Says(LAST)]), tmp_path, "native") as chain:
        asks = ("chat", "--quiet", "-q", PROMPT, "-t", "fwbg")  # with -z it does not wait for the server
        said = await agents.hermes(f"{chain.url}/v1", home, folder, "chat_completions", *asks, mcp_servers=servers)
    assert said == LAST
    assert_requests_unchanged(chain)
    assert len(chain.seen()[0].tools) == 50
    for told, own in zip(results(chain), RESULTS, strict=True):
        assert json.dumps(own, ensure_ascii=False) in told


@pytest.mark.ran("Codex", "claude CLI")
async def test_codex_tool_round_trip_on_claude_cli(tmp_path: Path) -> None:
    """Two commands in one turn, one of which fails; an image in the prompt, and one as a tool result."""
    home = client_home(tmp_path)
    folder = agents.folder_of(home)
    (folder / "red.png").write_bytes(base64.b64decode(PICTURE))
    commands: list[tuple[str, dict[str, object]]] = [
        ("exec_command", {"cmd": f"cat {name}"}) for name in ("notes.txt", "missing.txt")
    ]
    view = [("view_image", {"path": str(folder / "red.png")})]
    script = Turns([Says("Let me look.", commands), Says(calls=view), Says(LAST)])
    async with behind_claude(script, tmp_path, "native") as chain:
        told = await agents.codex(chain.url, home, folder, "m", "-i", "red.png")
    assert [line["item"]["text"] for line in told if line.get("item", {}).get("type") == "agent_message"][-1] == LAST
    assert_requests_unchanged(chain)
    notes, missing, picture = results(chain)
    assert notes.endswith(f"exited with code 0\nOriginal token count: 3\nOutput:\n{NOTES}")
    assert missing.endswith("cat: missing.txt: No such file or directory\n")
    assert picture == [IMAGE]
    assert IMAGE in chain.seen()[0].said[0][1]


@pytest.mark.every  # 15 s of CPU time; test_run.py has a round trip of OpenClaw, and Codex sends an image here
@pytest.mark.ran("OpenClaw", "claude CLI")
async def test_openclaw_tool_round_trip_on_claude_cli(tmp_path: Path) -> None:
    """Reads two files in one turn, one of which is an image: its result arrives in content parts."""
    home = client_home(tmp_path)
    folder = agents.folder_of(home)
    (folder / "red.png").write_bytes(base64.b64decode(PICTURE))
    calls: list[tuple[str, dict[str, object]]] = [
        ("read", {"path": str(folder / name)}) for name in ("notes.txt", "red.png")
    ]
    async with behind_claude(Turns([Says("Let me look.", calls), Says(LAST)]), tmp_path, "native") as chain:
        told = await agents.openclaw(chain.url, home, folder)
    assert (told["final"], told["toolSummary"]) == (LAST, {"calls": 2, "tools": ["read"], "failures": 0})
    contents = [message["content"] for message in json.loads(chain.posted[-1].body)["messages"]]
    assert any(part["type"] == "image_url" for content in contents if isinstance(content, list) for part in content)
    # OpenClaw's own prompt names the host, so the sent request is read without the check for host data.
    last = Seen.of(chain.sent[-1])
    assert [block["content"] for block in last.blocks("tool_result")] == [NOTES, "Read image file [image/png]"]
    assert IMAGE in last.said[-1][1]


@pytest.mark.ran({"hermes": "Hermes Agent", "codex": "Codex"}, "claude CLI")
@pytest.mark.parametrize("agent", [pytest.param("hermes", marks=pytest.mark.every), "codex"])
async def test_agent_tool_round_trip_in_text_mode(agent: str, tmp_path: Path) -> None:
    """In text mode: two calls in one turn, one of which fails; the prompt contains both results."""
    home = client_home(tmp_path)
    folder = agents.folder_of(home)
    names = ("notes.txt", "missing.txt")
    calls: list[tuple[str, dict[str, object]]] = [("exec_command", {"cmd": f"cat {name}"}) for name in names]
    if agent == "hermes":
        calls = [("read_file", {"path": str(folder / name)}) for name in names]
    async with behind_claude(Turns([Says("Let me look.", calls), Says(LAST)]), tmp_path, "text") as chain:
        if agent == "hermes":
            base = f"{chain.url}/v1"
            said = await agents.hermes(base, home, folder, "chat_completions", "-z", PROMPT, "-t", "file")
        else:
            lines = await agents.codex(chain.url, home, folder, "m")
            said = [x["item"]["text"] for x in lines if x.get("item", {}).get("type") == "agent_message"][-1]
    assert said == LAST
    first, second = chain.seen()
    assert first.tools == {}
    assert calls[0][0] in first.system
    told = "".join(block.get("text", "") for _, blocks in second.said for block in blocks)
    places = [told.index(words) for words in ("Let me look.", NOTES.strip(), "missing.txt")]
    assert places[0] < places[1]
    assert "No such file" in told or "File not found" in told
