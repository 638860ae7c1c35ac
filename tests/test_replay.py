"""A captured exchange once more: reproduced stage by stage, explained, cut otherwise, and told where it differs.

client ─HTTP→ gateway, which keeps the exchange ─HTTP→ a server that plays what a test tells it to;
then `dragoman replay`, with none of these left
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman import cli
from far import RESPONSES, ask
from gateway import CHAT, MESSAGES
from test_capture import TOOLS, keeping, kept, says

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CUTS = ("recorded", "whole", "chars", "random")

BROKEN = {
    "an unclosed brace": ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"\n</tool_call>', "}"),
    "a tool that is not offered": (CALL.replace("get_weather", "get_whether_report"), "unknown_tool"),
    "arguments that are none": (CALL.replace('{"city": "Paris"}', "Paris"), "expected"),
    "no name": (CALL.replace('"name"', '"nome"'), "name"),
    "a closer of another format": (CALL.replace("</tool_call>", "</function>"), "get_weather"),
    "a call in the middle of a word": (f"the tag{CALL[:11]} opens a call", "expected"),
}
"""By what is wrong: what the model writes, and a word that the explanation must have."""


async def replayed(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str]:
    """The exit status, and what is said."""
    capsys.readouterr()
    status = await asyncio.to_thread(cli.main, ["replay", *map(str, args)])
    return status, capsys.readouterr().out


def stages(said: str) -> dict[str, str]:
    """Each stage, and whether it is the same."""
    return dict(re.findall(r"^  (\w+(?: \d)?(?:, \d)?) +(same|differs)$", said, re.M))


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("mode", ["parse", "inject", "native"])
async def test_a_parse_that_failed_fails_again_and_is_explained(
    broken: tuple[str, str], mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, why = broken
    # the guard would ask once more, and has a page of tests of its own
    policy = {"tool_choice": "auto"}
    async with keeping(tmp_path, says(*re.findall(r"(?s).{1,7}", text)), mode=mode, format="hermes") as url:
        answer = await ask(url, MESSAGES, True, tools=anthropic(TOOLS), **({} if mode else policy))
        await kept(tmp_path)
    assert '"tool_use"' not in answer.text or why == "get_weather" or "max_tokens" in answer.text
    status, said = await replayed(capsys, tmp_path, "--explain")
    assert status == 0, said
    assert set(stages(said).values()) == {"same"}
    assert why in said.partition("\ntext 1")[2]
    assert "no_call" in said or "! " in said or mode == "native" or "whole call" in said


def anthropic(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in tools]


def asked(path: str) -> dict[str, Any]:
    if path == CHAT:
        return {"tools": TOOLS}
    if path == MESSAGES:
        return {"tools": anthropic(TOOLS)}
    return {"tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("mode", ["native", "parse", "inject"])
async def test_every_way_however_it_is_cut(
    mode: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"Let me see… <b>{CALL}\n"
    async with keeping(tmp_path, says(*re.findall(r"(?s).{1,5}", text)), mode=mode, format="hermes") as url:
        assert (await ask(url, path, True, **asked(path))).status_code == 200
        await kept(tmp_path)
    for cut, seed in [*((cut, 0) for cut in CUTS), ("random", 1), ("random", 2)]:
        status, said = await replayed(capsys, tmp_path, "--cut", cut, "--seed", str(seed))
        assert status == 0, said
