"""The commands of docs/agents.md, run unchanged: the real agents with a scripted model."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from bench import offline

from support import agents, doc_examples
from support.agents import NOTES, Calling
from support.doc_examples import GATEWAY
from support.scripted_backend import IMPATIENT, served

PAGE: Final = "docs/agents.md"
MODEL: Final = "qwen2.5-coder-1.5b"
QUIET: Final = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
"""Turns off requests to the network, which is not available here."""
FILES: Final = {"claude": (), "codex": (), "opencode": ("opencode.json",), "hermes": ("~/.hermes/config.yaml",)}
TOOLS: Final[Mapping[str, tuple[str, str, str]]] = {
    "claude": ("Read", "file_path", "notes.txt"),
    "codex": ("exec_command", "cmd", "cat notes.txt"),
    "opencode": ("read", "filePath", "notes.txt"),
    "hermes": ("read_file", "path", "notes.txt"),
}
"""By program: the tool that the model calls, and its argument."""
PROGRAMS: Final = {
    "claude": offline.claude_code,
    "codex": offline.codex,
    "opencode": offline.opencode,
    "hermes": lambda: offline.agent("hermes"),
}


@pytest.mark.ran(
    {"claude": "Claude Code", "codex": "Codex", "opencode": "OpenCode", "hermes": "Hermes Agent"}, "a script"
)
@pytest.mark.parametrize("program", PROGRAMS)
async def test_quick_start_command_runs_agent(program: str, tmp_path: Path) -> None:
    """The model calls a tool that reads a file, and the agent prints the content."""
    folder = agents.folder_of(tmp_path)
    (programs := tmp_path / "bin").mkdir()
    (programs / program).symlink_to(PROGRAMS[program]())
    (typed,) = (c.typed for c in doc_examples.commands(PAGE) if program in c.words[:1])
    tool, member, value = TOOLS[program]
    value = str(folder / value) if member.lower() == "filepath" or "_" in member else value
    async with served(script := Calling(tool, {member: value}), names=(MODEL,), **IMPATIENT) as s:
        for title in FILES[program]:
            (content,) = (block.code for block in doc_examples.of("json", "yaml", page=PAGE) if block.title == title)
            file = Path(title.replace("~", str(tmp_path))) if title.startswith("~") else folder / title
            file.parent.mkdir(exist_ok=True)
            file.write_text(content.replace(GATEWAY, s.url))
        path = f"{programs}:{os.defpath}"
        said = await agents.run(
            s.url, tmp_path, folder, ["/bin/sh", "-c", typed.replace(GATEWAY, s.url)], PATH=path, **QUIET
        )
    assert NOTES.strip() in script.result()
    assert NOTES.strip() in said
