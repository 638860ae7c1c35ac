"""The programs in examples/, started like a user starts them."""

import sys
from pathlib import Path
from typing import Final

from bench import offline
from bench.claude_code import QUIET

from support import agents
from support.agents import NOTES, PROMPT, Calling
from support.gateway import CHAT
from support.paths import ROOT
from support.scripted_backend import IMPATIENT, served
from support.source_path import SOURCES

EXAMPLES: Final = ROOT / "examples"


async def test_local_chain_example_runs_claude_code(tmp_path: Path) -> None:
    """The real Claude Code, the real gateway, and a scripted upstream."""
    folder = agents.folder_of(tmp_path)
    async with served(script := Calling("Read", {"file_path": str(folder / "notes.txt")}), **IMPATIENT) as s:
        chain = [
            sys.executable,
            EXAMPLES / "local_chain.py",
            f"{s.url}/v1",
            "--model",
            "m",
            "--prompt-trim",
            "aggressive",
        ]
        claudes = ["--claude", offline.claude_code(), "--", "-p", PROMPT, "--allowedTools", "Read"]
        said = await agents.run(s.url, tmp_path, folder, [*chain, *claudes], PYTHONPATH=SOURCES, **QUIET)
    assert said.strip() == script.result().strip()
    assert NOTES.strip() in said
    assert {path for path, _ in s.sent} == {CHAT}
    described = {tool.name: tool.description for tool in script.asked[0].tools}
    assert "Read" in described
    assert max(map(len, described.values())) <= 202
    assert b"x-anthropic-billing-header" not in s.sent[0].body
