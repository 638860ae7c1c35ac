"""`dragoman chat` with a real FastMCP server, whose tools have names that APIs do not allow."""

import json
import shlex
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

from bench import offline

from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request, ToolResult
from support import mcp_accounting as accounting
from support.gateway import DEADLINE_S, command, environment
from support.scripted_backend import Scripted, in_thread
from support.source_path import SOURCES


def test_tools_of_fastmcp_server_run(tmp_path: Path) -> None:
    offered: list[str] = []

    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        if any(isinstance(part, ToolResult) for part in request.messages[-1].parts):
            yield TextDelta("Done.")
        else:
            offered.extend(tool.name for tool in request.tools)
            (longest,) = (tool.name for tool in request.tools if tool.description.startswith("Another, whose name"))
            for number, (name, arguments) in enumerate(accounting.CALLS):
                own = longest if name.startswith(accounting.LONG) else name.replace(".", "_")
                yield ToolCallStart(number, f"call_{number}", own)
                yield ToolCallDelta(number, json.dumps(arguments))
                yield ToolCallEnd(number)
        yield Finish("stop")

    server = shlex.join([str(offline.agent("python")), str(accounting.SERVER)])
    env = {**environment(tmp_path), "PYTHONPATH": SOURCES}
    with in_thread(script) as url:
        words = command("chat", "Look it up.", "--gateway", url, "--mcp", server, "--yes", "--json")
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S
        )
    assert done.returncode == 0, done.stderr
    assert len(set(offered)) == 46
    answer = json.loads(done.stdout)
    assert answer["text"] == "Done."
    assert all(call["was_run"] for call in answer["calls"])
    for call, result in zip(answer["calls"], accounting.RESULTS, strict=True):
        assert result in call["result"]
    assert [call["is_error"] for call in answer["calls"]] == [False, False, True, False]
    assert "FastMCP" not in done.stderr, "what the server prints is not shown"
