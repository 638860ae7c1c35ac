"""Agents, the real ones, whose model is the real claude: they run what its model calls, and it sees what came of it."""

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


def home_of(tmp_path: Path) -> Path:
    home = tmp_path / "home-of-the-client"
    home.mkdir()
    return home


def has_all(chain: Chain) -> None:
    """Each request reached the model as the client made it."""
    for seen, posted in zip(chain.seen(), chain.posted, strict=True):
        assert seen.system == instructed(posted)
        assert len(seen.system) > 1000
        theirs = offered(posted)
        assert {name: seen.tools.get(spelled(name)) for name in theirs} == theirs


def results(chain: Chain) -> list[str]:
    """What the model was told of its calls, in their order."""
    last = chain.seen()[-1]
    found = {block["tool_use_id"]: block["content"] for block in last.blocks("tool_result")}
    return [found.pop(block["id"]) for block in last.blocks("tool_use")]


@pytest.mark.ran("Hermes Agent", "claude CLI")
@pytest.mark.parametrize("mode", ["codex_responses", "anthropic_messages"])
async def test_hermes(mode: str, tmp_path: Path) -> None:
    """Two files read in one answer, one of which is not there; by the third API it is seen with a server of MCP."""
    home = home_of(tmp_path)
    folder = agents.folder_of(home)
    calls: list[tuple[str, dict[str, object]]] = [
        ("read_file", {"path": str(folder / name)}) for name in ("notes.txt", "missing.txt")
    ]
    async with behind_claude(Turns([Says("Let me look.", calls), Says(LAST)]), tmp_path, "native") as chain:
        base = chain.url if mode == "anthropic_messages" else f"{chain.url}/v1"
        assert await agents.hermes(base, home, folder, mode, "-z", PROMPT, "-t", "file") == LAST
    has_all(chain)
    notes, missing = map(json.loads, results(chain))
    assert notes["content"].startswith(f"1|{NOTES}")
    assert missing["error"].startswith("File not found: ")
    assert chain.seen()[-1].said[0] == ("user", [text(PROMPT)])


@pytest.mark.ran("Hermes Agent", "claude CLI")
async def test_hermes_with_a_server_of_mcp(tmp_path: Path) -> None:
    """It names the tools itself, by its own prefix, and has four more for what else such a server may have."""
    home = home_of(tmp_path)
    folder = agents.folder_of(home)
    servers = {"fwbg": {"command": str(offline.agent("python")), "args": [str(SERVER)]}}
    named = [("mcp__fwbg__" + re.sub(r"\W", "_", name), arguments) for name, arguments in CALLS]
    async with behind_claude(Turns([Says(calls=named), Says(LAST)]), tmp_path, "native") as chain:
        asks = ("chat", "--quiet", "-q", PROMPT, "-t", "fwbg")  # by -z it does not wait for the server
        said = await agents.hermes(f"{chain.url}/v1", home, folder, "chat_completions", *asks, mcp_servers=servers)
    assert said == LAST
    has_all(chain)
    assert len(chain.seen()[0].tools) == 50
    for told, own in zip(results(chain), RESULTS, strict=True):
        assert json.dumps(own, ensure_ascii=False) in told


@pytest.mark.ran("Codex", "claude CLI")
async def test_codex(tmp_path: Path) -> None:
    """Two commands in one answer, one of which fails; a picture in its prompt, and one as the result of a tool."""
    home = home_of(tmp_path)
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
    has_all(chain)
    notes, missing, picture = results(chain)
    assert notes.endswith(f"exited with code 0\nOriginal token count: 3\nOutput:\n{NOTES}")
    assert missing.endswith("cat: missing.txt: No such file or directory\n")
    assert picture == [IMAGE]
    assert IMAGE in chain.seen()[0].said[0][1]


@pytest.mark.ran("OpenClaw", "claude CLI")
async def test_openclaw(tmp_path: Path) -> None:
    """Two files read in one answer, one of which is an image: its result arrives in content parts."""
    home = home_of(tmp_path)
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
    # The prompt of OpenClaw itself names the host, so what was sent is looked at without that check.
    last = Seen.of(chain.sent[-1])
    assert [block["content"] for block in last.blocks("tool_result")] == [NOTES, "Read image file [image/png]"]
    assert IMAGE in last.said[-1][1]


@pytest.mark.ran({"hermes": "Hermes Agent", "codex": "Codex"}, "claude CLI")
@pytest.mark.parametrize("agent", ["hermes", "codex"])
async def test_in_words(agent: str, tmp_path: Path) -> None:
    """By the text mode: two calls in one answer, one of which fails; what came of both is in what the model reads."""
    home = home_of(tmp_path)
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
