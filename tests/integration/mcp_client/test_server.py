"""Real MCP servers by stdio and HTTP: results, crashes, hanging calls, changed tools, and what is left at the end."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp.types import CallToolResult, TextContent

from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.mcp_client import limits
from dragoman.mcp_client import server as server_module
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.mcp_client.result import MAX_CHARS, McpServerError, read_result
from dragoman.mcp_client.server import McpServer
from support.mcp_servers import COMMAND, OLD_COMMAND, http_server, stdio

STAYS = f"runpy.run_path({OLD_COMMAND[1]!r}, run_name='__main__'); signal.sigwait([signal.SIGINT])"
"""Serves with the older protocol, and stays when standard input ends."""


@asynccontextmanager
async def running(config: McpServerConfig, **environ: str) -> AsyncIterator[McpServer]:
    server = McpServer("books", config, environ)
    try:
        yield server
    finally:
        await server.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def by(transport: str) -> AsyncIterator[McpServer]:
    if transport == "stdio":
        async with running(stdio()) as server:
            yield server
        return
    async with http_server() as url, running(McpServerConfig(url=url, timeout_s=60.0)) as server:
        yield server


each_transport = pytest.mark.parametrize("transport", ["stdio", "http"])


@each_transport
async def test_lists_and_calls_tools(transport: str) -> None:
    async with by(transport) as server:
        tools = {tool.name: tool for tool in await server.tools()}
        assert len(tools) == 46
        assert tools["add"].description == "Adds two numbers."
        assert (tools["add"].read_only, tools["run"].read_only) == (True, False)
        assert '"required": ["a", "b"]' in tools["add"].parameters
        assert (await server.call("add", {"a": 2, "b": 3})).text == "5"
        failed = await server.call("fail", {})
        assert failed.is_error
        assert "the ledger is closed" in failed.text
        assert (await server.call("report", {})).structured == '{"files": 4}'
        assert (await server.call("report", {})).text.count("files") == 1
        assert (await server.call("chart", {})).text == "[image/png, 1 kB, not shown]"
        many = await asyncio.gather(*(server.call("add", {"a": n, "b": 0}) for n in range(20)))
        assert [each.text for each in many] == [str(n) for n in range(20)]


async def test_older_protocol() -> None:
    async with running(McpServerConfig(command=OLD_COMMAND)) as server:
        assert [tool.name for tool in await server.tools()] == ["greet"]
        assert (await server.call("greet", {})).text == "hello"


async def test_images_for_models_that_read_them() -> None:
    async with running(stdio(images=True)) as server:
        result = await server.call("chart", {})
    assert (result.text, result.images[0].source.media_type) == ("", "image/png")


async def test_large_result_is_cut_with_a_note() -> None:
    async with running(stdio()) as server:
        text = (await server.call("large", {"size": 5_000_000})).text
    assert text.endswith(f"[The result was cut: {MAX_CHARS} of 5000000 characters are shown.]")
    assert len(text) < MAX_CHARS + 100


async def test_crashed_server_is_restarted() -> None:
    async with running(stdio()) as server:
        first = (await server.call("pid", {})).text
        with pytest.raises(
            McpServerError, match=r"^the MCP server books ended before it could answer the call of crash"
        ):
            await server.call("crash", {})
        assert (await server.call("pid", {})).text != first


async def test_http_server_that_was_restarted_is_asked_again() -> None:
    async with http_server() as url:
        server = McpServer("books", McpServerConfig(url=url, timeout_s=60.0), {})
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
        with pytest.raises(McpServerError, match="books"):
            await server.call("crash", {})
    async with http_server(int(url.rpartition(":")[2].partition("/")[0])):
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
        await server.close()


async def test_hanging_call_is_cancelled_and_others_run_on(tmp_path: Path) -> None:
    started = tmp_path / "started"
    async with running(stdio()) as server:
        hanging = asyncio.create_task(server.call("hang", {"started": str(started)}))
        while not started.exists():
            await server.call("pid", {})
        hanging.cancel()
        await asyncio.wait([hanging])
        while not started.with_suffix(".cancelled").exists():
            await server.call("pid", {})
        assert hanging.cancelled()


async def test_call_times_out_and_a_frozen_server_is_replaced() -> None:
    async with running(stdio()) as server:
        await server.tools()
        first = (await server.call("pid", {})).text
        server.config = stdio(timeout_s=0.2)
        for _ in range(2):
            with pytest.raises(McpServerError, match=r"books did not answer the call of freeze within 0.2 s"):
                await server.call("freeze", {})
        server.config = stdio()
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
        await server.close()
        assert not is_alive(int(first))


@each_transport
async def test_changed_tools_are_listed_again(transport: str) -> None:
    async with by(transport) as server:
        assert "grown" not in {tool.name for tool in await server.tools()}
        assert await server.tools() is await server.tools()
        await server.call("grow", {})
        async with asyncio.timeout(60):
            while "grown" not in {tool.name for tool in await server.tools()}:
                await server.call("add", {"a": 1, "b": 1})


async def test_only_allowed_tools() -> None:
    async with running(stdio(allowed_tools=("add",))) as server:
        assert [tool.name for tool in await server.tools()] == ["add"]
        with pytest.raises(McpServerError, match="no tool 'run' that may be used"):
            await server.call("run", {"code": "1"})


async def test_program_gets_only_named_variables() -> None:
    async with running(stdio(env=("BOOKS_KEY",)), BOOKS_KEY="abcdef", OTHER="ghi") as server:
        assert (await server.call("variable", {"name": "BOOKS_KEY"})).text == "abcdef"
        assert (await server.call("variable", {"name": "OTHER"})).text == ""


async def test_headers() -> None:
    async with http_server() as url:
        config = McpServerConfig(url=url, headers={"x-one": "1"}, headers_env={"authorization": "BOOKS_KEY"})
        async with running(config, BOOKS_KEY="Bearer abcdef") as server:
            assert (await server.call("header", {"field": "x-one"})).text == "1"
            assert (await server.call("header", {"field": "authorization"})).text == "Bearer abcdef"


@each_transport
async def test_failed_calls_do_not_break_other_calls(transport: str, tmp_path: Path) -> None:
    async with by(transport) as server:
        first = (await server.call("pid", {})).text
        waiting = asyncio.create_task(server.call("wait_for", {"path": str(tmp_path / "go")}))
        with pytest.raises(McpServerError, match="could not answer the call of reject"):
            await server.call("reject", {})
        (tmp_path / "go").touch()
        assert (await waiting).text == "went"
        assert (await server.call("pid", {})).text == first


async def test_parallel_timeouts_do_not_restart_the_server() -> None:
    async with running(stdio()) as server:
        first = (await server.call("pid", {})).text
        server.config = stdio(timeout_s=0.2)
        failed = await asyncio.gather(*(server.call("hang", {}) for _ in range(3)), return_exceptions=True)
        assert {type(each) for each in failed} == {McpServerError}
        server.config = stdio()
        assert (await server.call("pid", {})).text == first


async def test_secrets_of_headers_are_redacted_in_errors(caplog: pytest.LogCaptureFixture) -> None:
    async with http_server() as url:
        config = McpServerConfig(url=url, headers_env={"x-token": "BOOKS_KEY"}, timeout_s=60.0)
        async with running(config, BOOKS_KEY="abc-def-ghi") as server:
            with pytest.raises(McpServerError, match=r"the token \*+ is wrong") as caught:
                await server.call("reject", {"field": "x-token"})
    assert "abc-def-ghi" not in f"{caught.value}{caplog.text}"
    assert "is wrong" not in caplog.text


async def test_request_that_leaves_does_not_end_the_start_for_others(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = f"import runpy; open({str(starts)!r}, 'a').write('x'); runpy.run_path({COMMAND[1]!r}, run_name='__main__')"
    async with running(stdio(command=(sys.executable, "-c", code))) as server:
        leaving = asyncio.create_task(server.tools())
        while not starts.exists():
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert len(await server.tools()) > 40
    assert (leaving.cancelled(), starts.read_text()) == (True, "x")


async def test_offered_tools_do_not_wait_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SOON_S", 0.1)
    hanging = McpServerConfig(command=(sys.executable, "-c", "import sys; sys.stdin.read()"), timeout_s=60.0)
    async with running(hanging) as server:
        with pytest.raises(McpServerError, match="still being started"):
            await server.tools_soon()
    async with running(stdio()) as server:
        listed = await server.tools()
        with pytest.raises(McpServerError):
            await server.call("crash", {})
        assert await server.tools_soon() is listed


async def test_interrupted_response_fails_only_its_call() -> None:
    async with http_server(mode="sessions") as url, running(McpServerConfig(url=url, timeout_s=60.0)) as server:
        await server.tools()
        waiting = asyncio.create_task(server.call("wait", {}))
        with pytest.raises(McpServerError, match="could not answer the call of reset"):
            await server.call("reset", {})
        await server.call("go", {})
        assert (await waiting).text == "hello"


async def test_program_that_crashes_at_its_first_request_is_not_restarted_at_once() -> None:
    async with running(stdio()) as server:
        with pytest.raises(McpServerError, match="ended before"):
            await server.call("crash", {})
        with pytest.raises(McpServerError, match="could not be started"):
            await server.call("crash", {})


async def test_failed_start_logs_what_the_program_wrote(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import sys; sys.exit('the license has expired')"
    async with running(McpServerConfig(command=(sys.executable, "-c", code))) as server:
        with pytest.raises(McpServerError) as caught:
            await server.tools()
    assert "the license has expired" in caplog.text
    assert "license" not in f"{caught.value}{capfd.readouterr().err}"


async def test_refused_start_names_the_status_and_what_to_check() -> None:
    async with http_server() as url, running(McpServerConfig(url=f"{url}/none", timeout_s=60.0)) as server:
        with pytest.raises(McpServerError, match="HTTP status 404; check its URL"):
            await server.tools()


async def test_expired_session_is_opened_again() -> None:
    async with http_server(mode="sessions") as url, running(McpServerConfig(url=url, timeout_s=60.0)) as server:
        assert (await server.call("greet", {})).text == "hello"
        assert (await server.call("expire", {})).text == "expired"
        assert (await server.call("greet", {})).text == "hello"


async def test_large_response_of_a_url_fails_only_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BYTES", 100_000)
    async with http_server(mode="sessions") as url, running(McpServerConfig(url=url, timeout_s=60.0)) as server:
        with pytest.raises(McpServerError, match="could not answer the call of large"):
            await server.call("large", {})
        assert (await server.call("greet", {})).text == "hello"


async def test_servers_are_closed_at_the_same_time() -> None:
    code = f"import signal, runpy, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); {STAYS}"
    config = McpServerConfig(command=(sys.executable, "-c", code), timeout_s=60.0)
    servers = McpServers({f"s{n}": config for n in range(3)}, {})
    await asyncio.gather(*(each.tools() for each in servers.by_name.values()))
    started = time.monotonic()
    await servers.close()
    assert time.monotonic() - started < 10  # one takes four seconds


async def test_nested_json_is_text() -> None:
    result = CallToolResult(content=[TextContent(type="text", text="[" * 3000)], structured_content={"a": 1})
    assert read_result(result, with_images=False).text.startswith("[[[")


async def test_wrong_result_fails_only_its_call() -> None:
    async with http_server(mode="sessions") as url, running(McpServerConfig(url=url, timeout_s=60.0)) as server:
        await server.tools()
        for _ in range(2):
            with pytest.raises(McpServerError, match="does not match the protocol or the tool's output schema"):
                await server.call("wrong", {})


async def test_no_process_is_left() -> None:
    async with running(stdio()) as server:
        pid = int((await server.call("pid", {})).text)
    assert not is_alive(pid)
    with pytest.raises(McpServerError, match="could not be started"):
        await server.call("pid", {})


async def test_program_that_cannot_start_is_not_tried_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(McpServerConfig(command=("/no/such/program",))) as server:
        for _ in range(3):
            with pytest.raises(McpServerError, match="books could not be started"):
                await server.tools()
    assert len([each for each in caplog.records if "could not be started" in each.message]) == 1
    async with running(McpServerConfig(command=(sys.executable, "-c", "pass"))) as server:
        with pytest.raises(McpServerError, match="books could not be started"):
            await server.tools()


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (McpServerConfig(), "expected either command or url, got neither - at mcp.books"),
        (McpServerConfig(command=("a",), url="http://a/"), "got both"),
        (McpServerConfig(url="ftp://a"), "expected a URL like http://127.0.0.1:9000/mcp"),
        (McpServerConfig(command=("a",), headers={"a": "b"}), "headers are sent to a url only"),
        (McpServerConfig(url="http://a/", env=("A",)), "env and cwd are for a command only"),
        (McpServerConfig(command=("a",), env=("NOT_SET",)), "expected a value in the variable NOT_SET, got none"),
    ],
)
def test_wrong_settings(config: McpServerConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        McpServer("books", config, {})


@pytest.mark.parametrize("name", ["", "a/b", "a__b", "a_"])
def test_ambiguous_names(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a name without"):
        McpServers({name: stdio()}, {})


def test_secrets_of_urls() -> None:
    server = McpServer("books", McpServerConfig(url="https://u:pass-word@h/mcp?key=abc-def-ghi"), {})
    assert {*server.secret_values()} == {"pass-word", "abc-def-ghi"}


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.PACKAGES, "tools", ("module_that_is_not_installed",))
    with pytest.raises(ConfigError, match=r"MCP servers need more than is installed: .*dragoman\[tools\]"):
        McpServer("books", stdio(), {})
