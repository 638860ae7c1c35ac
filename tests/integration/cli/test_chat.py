"""`dragoman chat`: pipes, and a real terminal with a scripted model and a real MCP server."""

import base64
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.terminal import Terminal

from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Image, Request, Text, ToolResult, Usage
from support import command_server
from support.gateway import DEADLINE_S, command, environment, running
from support.mcp_server import PIXEL
from support.mcp_servers import COMMAND
from support.scripted_backend import Scripted, in_thread, plain
from support.source_path import SOURCES

MCP = shlex.join(COMMAND)


class Model:
    """A scripted model: repeats the last message of the user, or does what that says."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        self.requests.append(request)
        last = request.messages[-1]
        texts = [part.text for part in last.parts if isinstance(part, Text)]
        yield Start("", "", 0)
        if any(isinstance(part, Image) for part in last.parts):
            yield Notice("content_dropped", "the model is not shown: image", detail="image")
        results = [part for part in last.parts if isinstance(part, ToolResult)]
        if results:
            said = [part.text for result in results for part in result.parts if isinstance(part, Text)]
            yield TextDelta(f"The result is: {' and '.join(said)}")
        elif texts == ["think"]:
            yield ReasoningDelta("Let me see.")
            yield TextDelta("Done.")
        elif texts == ["warn"]:
            yield TextDelta("Hello ")
            yield Notice("failed_over", "m", detail="a > b")
            yield TextDelta("there")
        elif texts == ["be silent"]:
            pass
        elif texts == ["fail"]:
            yield Failure(BackendUnavailableError("the engine ended"))
            return
        elif texts == ["talk"]:
            yield TextDelta("I talk ")
            await backend.go.wait()
        elif texts and texts[0].startswith("add"):
            yield ToolCallStart(0, f"call_{len(self.requests)}", "add")
            yield ToolCallDelta(0, '{"a": 17, "b": 25}')
            yield ToolCallEnd(0)
        else:
            yield TextDelta(f"You said: {' '.join(texts)}")
        yield UsageUpdate(Usage(20, 4))
        yield Finish("stop")


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def url(model: Model) -> Iterator[str]:
    with in_thread(model) as address:
        yield address


def home_environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment, in which no gateway of another test is found."""
    own = {"DRAGOMAN_HOME": str(home / "state"), "DRAGOMAN_SERVER_PORT": "9", "PYTHONPATH": SOURCES}
    return {**environment(home), **own, **variables}


def run(home: Path, *args: str, text: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    return command_server.run(["chat", *args], home_environment(home, **variables), home, DEADLINE_S, text)


# In a pipe


def test_reply_alone_is_on_standard_output(url: str, tmp_path: Path) -> None:
    done = run(tmp_path, "hello", "--gateway", url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")


def test_text_of_pipe_follows_the_prompt(url: str, model: Model, tmp_path: Path) -> None:
    done = run(tmp_path, "review this", "--gateway", url, text="diff --git\n+é\n")
    assert done.returncode == 0, done.stderr
    assert model.requests[0].messages[0].parts == (
        Text("review this\n\nText from standard input:\n\n```\ndiff --git\n+é\n```"),
    )
    assert run(tmp_path, "--gateway", url, text="only this\n").stdout == "You said: only this\n"


def test_system_prompt_and_image_are_sent(url: str, model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    done = run(tmp_path, "what is it?", "--gateway", url, "--system", "Be short.", "--image", "a.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "You said: what is it?\n"
    assert done.stderr == "dragoman: warning: content_dropped: image; the model does not get this content\n"
    system, user = model.requests[0].messages
    assert system.parts == (Text("Be short."),)
    (image,) = (part for part in user.parts if isinstance(part, Image))
    assert (image.source.media_type, base64.b64decode(image.source.data)) == ("image/png", PIXEL)


def test_warning_during_the_response_is_on_standard_error(url: str, tmp_path: Path) -> None:
    done = run(tmp_path, "warn", "--gateway", url)
    assert (done.stdout, done.stderr) == ("Hello there\n", "dragoman: warning: failed_over: a > b\n")


def test_reasoning_is_not_part_of_the_output(url: str, tmp_path: Path) -> None:
    assert run(tmp_path, "think", "--gateway", url).stdout == "Done.\n"
    assert json.loads(run(tmp_path, "think", "--gateway", url, "--json").stdout)["reasoning"] == "Let me see."


def test_json_has_text_calls_and_usage(url: str, tmp_path: Path) -> None:
    done = run(tmp_path, "add them", "--gateway", url, "--mcp", MCP, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["text"] == "The result is: 42"
    assert answer["calls"] == [
        {"name": "add", "arguments": {"a": 17, "b": 25}, "was_run": True, "is_error": False, "result": "42"}
    ]
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (40, 8)
    assert (answer["model"], answer["finish_reason"], answer["warnings"]) == ("m", "stop", [])
    assert "→ add" in done.stderr


def test_without_terminal_no_call_runs_unless_accepted(url: str, tmp_path: Path) -> None:
    done = run(tmp_path, "add them", "--gateway", url, "--mcp", MCP)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The result is: Error: the call was not run, because the user cannot be asked\n"
    assert "← error: the call was not run" in done.stderr
    assert run(tmp_path, "add them", "--gateway", url, "--mcp", MCP, "--yes").stdout == "The result is: 42\n"


def test_call_of_unknown_tool_is_an_error_for_the_model(url: str, tmp_path: Path) -> None:
    """Nothing runs on this machine except tools of MCP servers."""
    done = run(tmp_path, "add them", "--gateway", url, "--yes")
    assert done.stdout == "The result is: Error: there is no tool add\n"


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["fail"], 1, "dragoman chat: error: "),
        (["be silent"], 1, "the model's answer is empty"),
        (["hi", "--model", "mm"], 2, "unknown model 'mm'"),
        (["hi", "--mcp", "no-such-server"], 2, "expected a server of the settings, a URL or a command"),
        (["hi", "--mcp", f"{sys.executable} missing.py"], 1, "could not be started: MCPError; it wrote: "),
        (["hi", "--image", "missing.png"], 2, "cannot read the image missing.png: No such file or directory"),
        ([], 2, "expected PROMPT or text on standard input, got neither"),
    ],
)
def test_errors_are_on_standard_error(args: list[str], status: int, message: str, url: str, tmp_path: Path) -> None:
    done = run(tmp_path, *args, "--gateway", url)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr


def test_binary_input_is_rejected(url: str, tmp_path: Path) -> None:
    assert "expected text on standard input, got binary data" in run(tmp_path, "hi", "--gateway", url, text="\0").stderr


def test_running_gateway_is_used(url: str, tmp_path: Path) -> None:
    with in_thread(plain, names=["far"]) as other:
        config = tmp_path / "config.toml"
        config.write_text(f'[upstreams.far]\nurl = "{other}/v1"\nmodels = ["far"]\nauto_probe = false\n')
        port = url.rpartition(":")[2]
        done = run(tmp_path, "hello", "--config", str(config), DRAGOMAN_SERVER_PORT=port)
        assert done.stdout == "You said: hello\n", done.stderr
        done = run(tmp_path, "hello", "--config", str(config), "--model", "far", DRAGOMAN_SERVER_PORT=port)
        assert done.stdout == "Hello\n", "the server of the settings has this model"


@pytest.mark.model
def test_embedded_model_answers_without_gateway(tmp_path: Path) -> None:
    done = run(
        tmp_path, "Say hello.", "--model", "smollm2", "--json", DRAGOMAN_HOME=environment(tmp_path)["DRAGOMAN_HOME"]
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["model"] == "smollm2-135m"
    assert answer["text"]
    assert answer["usage"]["output_tokens"] > 0


@pytest.mark.model
def test_running_gateway_with_embedded_model_answers(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        done = run(tmp_path, "Say hello.", "--gateway", gateway.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


# At a terminal


@contextmanager
def terminal(home: Path, *args: str, **variables: str) -> Iterator[Terminal]:
    """A chat at a terminal, after its first prompt."""
    env = home_environment(home, NO_COLOR="1", **variables)
    with Terminal(command("chat", *args), env, home, rows=200) as opened:
        opened.wait_for("Ctrl-D ends the chat")
        prompt(opened)
        yield opened


def prompt(opened: Terminal) -> str:
    """Waits for a prompt in the last line; returns the screen."""
    return opened.wait_for(lambda screen: screen.rpartition("\n")[2] in (">", "[1 image] >"))


def say(opened: Terminal, text: str) -> str:
    """Types a line, and returns the screen at the next prompt."""
    lines = opened.text.count("\n")
    opened.type(f"{text}\r")
    opened.wait_for(lambda screen: screen.count("\n") > lines)
    return prompt(opened)


def end(opened: Terminal) -> int:
    opened.type("\x04")
    return opened.wait_end()


at_terminal = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pseudo-terminal")


@at_terminal
def test_conversation_continues_until_ctrl_d(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        assert "m (http://127.0.0.1" in chat.text
        assert "You said: hello" in say(chat, "hello")
        assert "You said: and now" in say(chat, "and now")
        assert end(chat) == 0
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "user"]


@at_terminal
def test_ctrl_c_stops_reply_and_keeps_conversation(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        chat.type("talk\r")
        chat.wait_for("I talk")
        chat.interrupt("stopped")
        prompt(chat)
        say(chat, "and now")
        chat.type("half a line")
        chat.wait_for("> half a line")
        chat.interrupt(lambda screen: screen.count("Ctrl-D ends the chat") > 1)
        prompt(chat)
        assert end(chat) == 0
    texts = [part.text for message in model.requests[-1].messages for part in message.parts if isinstance(part, Text)]
    assert texts == ["talk", "I talk ", "and now"]


@at_terminal
def test_failed_message_is_not_kept(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        assert "the engine ended" in say(chat, "fail")
        assert "the reply is empty" in say(chat, "be silent")
        say(chat, "hello")
    assert len(model.requests[-1].messages) == 1


@at_terminal
def test_several_lines_are_one_message(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        chat.type("one\\\r")
        chat.wait_for("…")
        say(chat, "two")
        say(chat, "\x1b[200~def f():\r    pass\r\x1b[201~")
        assert end(chat) == 0
    first, second = (request.messages[-1].parts for request in model.requests)
    assert first == (Text("one\ntwo"),)
    assert isinstance(second[0], Text)
    assert second[0].text.rstrip("\n") == "def f():\n    pass"


@at_terminal
def test_history_is_kept_for_the_next_chat_unless_turned_off(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        say(chat, "remember me")
        end(chat)
    with terminal(tmp_path, "--gateway", url, "--no-history") as chat:
        say(chat, "forget me")
        end(chat)
    with terminal(tmp_path, "--gateway", url, DRAGOMAN_CHAT_HISTORY="false") as chat:
        say(chat, "forget this")
        end(chat)
    with terminal(tmp_path, "--gateway", url) as chat:
        say(chat, "\x1b[A")
        end(chat)
    assert model.requests[-1].messages[-1].parts == (Text("remember me"),)
    path = tmp_path / "state" / "chat_history"
    assert path.read_text() == '"remember me"\n'
    assert path.stat().st_mode & 0o777 == 0o600


@at_terminal
def test_call_runs_after_approval(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url, "--mcp", MCP) as chat:
        assert "add (mcp_server)  Adds two numbers." in say(chat, "/tools")
        chat.type("add them\r")
        chat.wait_for('→ add {"a": 17, "b": 25}')
        chat.wait_for("run add?")
        assert "The result is: Error: the user declined this call" in say(chat, "n")
        chat.type("add again\r")
        chat.wait_for(lambda screen: screen.count("run add?") == 2)
        assert "The result is: 42" in say(chat, "a")
        assert "← 42" in chat.text
        assert say(chat, "add once more").count("run add?") == 2
        assert end(chat) == 0


@at_terminal
def test_one_answer_asks_for_approval_too(url: str, tmp_path: Path) -> None:
    words = command("chat", "add them", "--gateway", url, "--mcp", MCP)
    with Terminal(words, home_environment(tmp_path, NO_COLOR="1"), tmp_path) as chat:
        chat.wait_for("run add?")
        chat.type("y\r")
        chat.wait_for("The result is: 42")
        assert chat.wait_end() == 0


@at_terminal
def test_ctrl_c_at_approval_stops_without_running(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url, "--mcp", MCP) as chat:
        chat.type("add them\r")
        chat.wait_for("run add?")
        chat.interrupt("stopped")
        prompt(chat)
        say(chat, "hello")
    (result,) = (
        part for message in model.requests[-1].messages for part in message.parts if isinstance(part, ToolResult)
    )
    assert "the user stopped" in str(result)


@at_terminal
def test_commands_change_the_conversation(url: str, model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    with terminal(tmp_path, "--gateway", url) as chat:
        assert "did you mean '/model'?" in say(chat, "/mdoel")
        assert "* m" in say(chat, "/model")
        assert "continuing with n" in say(chat, "/model n")
        assert "unknown model 'x'" in say(chat, "/model x")
        assert "system prompt: Be short." in say(chat, "/system Be short.")
        assert "1 image will be sent" in say(chat, "/image a.png")
        assert "content_dropped: image" in say(chat, "what is it?")
        say(chat, "and this?")
        assert "removed: and this?" in say(chat, "/undo")
        assert "saved as talk.json" in say(chat, "/save talk.json")
        assert "talk.json exists" in say(chat, "/save talk.json")
        assert "new conversation" in say(chat, "/clear")
        assert "/undo" in say(chat, "/help")
        assert "no tools are offered; start with --mcp" in say(chat, "/tools")
        say(chat, "/usr/bin is a folder")
        assert end(chat) == 0
    saved: dict[str, Any] = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["system", "user", "assistant"]
    assert saved["model"] == "n"
    assert [message.role for message in model.requests[-1].messages] == ["system", "user"]
    assert model.requests[-1].messages[-1].parts == (Text("/usr/bin is a folder"),)


@at_terminal
@pytest.mark.model
def test_embedded_model_is_exchanged_for_another(tmp_path: Path) -> None:
    home = environment(tmp_path)["DRAGOMAN_HOME"]
    (tmp_path / "other.gguf").symlink_to(Path(home) / "weights" / "smollm2-135m.gguf")
    with terminal(tmp_path, "--model", "smollm2", "--no-history", DRAGOMAN_HOME=home) as chat:
        assert "* smollm2-135m" in say(chat, "/model")
        assert "unknown model 'smolm2'; did you mean 'smollm2'?" in say(chat, "/model smolm2")
        assert "continuing with other (embedded, on this machine)" in say(chat, "/model other.gguf")
        chat.type("Say hello.\r")
        chat.wait_for(lambda screen: screen.partition("Say hello.\n")[2].partition(" ")[0] not in ("", "waiting"))
        # Without a limit, this model may write forever.
        chat.interrupt(lambda screen: screen.rpartition("\n")[2] == ">" and screen.count("\n>") >= 5)
        assert end(chat) == 0


@at_terminal
def test_tab_completes_commands_and_models(url: str, model: Model, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        assert "system prompt: none" in say(chat, "/sys\t")
        assert end(chat) == 0


@at_terminal
def test_reasoning_is_dim_and_can_be_hidden(url: str, tmp_path: Path) -> None:
    with Terminal(command("chat", "--gateway", url), home_environment(tmp_path), tmp_path) as chat:
        chat.wait_for("Ctrl-D ends the chat")
        prompt(chat)
        say(chat, "think")
        assert "\x1b[2mLet\x1b[0m" in chat.output
        assert "Let me see." in chat.text
    with terminal(tmp_path, "--gateway", url, "--hide-reasoning") as chat:
        assert "Let me see." not in say(chat, "think")
        assert "Done." in chat.text


@at_terminal
def test_control_characters_of_the_model_are_escaped(tmp_path: Path) -> None:
    async def hostile(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield ReasoningDelta("\x1b]0;OWNED\x07")
        yield TextDelta("\x1b[2J\x9b2J gone")
        yield Finish("stop")

    with in_thread(hostile) as url, terminal(tmp_path, "--gateway", url) as chat:
        assert r"\x1b[2J\x9b2J gone" in say(chat, "hello")
        assert "\x1b]0;" not in chat.output
        assert "\x1b[2J" not in chat.output


@at_terminal
def test_no_colours_are_used_if_not_wanted(url: str, tmp_path: Path) -> None:
    with terminal(tmp_path, "--gateway", url) as chat:
        say(chat, "think")
        assert "\x1b[2m" not in chat.output


@at_terminal
def test_chat_needs_a_terminal_for_its_output(url: str, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    done = subprocess.run(
        command("chat", "--gateway", url), env=home_environment(tmp_path), stdin=theirs, capture_output=True, text=True
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert "expected PROMPT or a terminal" in done.stderr
