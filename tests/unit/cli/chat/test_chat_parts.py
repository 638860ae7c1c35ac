"""Small parts of the chat: approval, comments of a gateway, MCP servers of the command line, text from a pipe."""

import sys
from collections.abc import AsyncGenerator

import pytest

from dragoman.cli.chat.approval import DECLINED, NOT_ASKED, Approval, shortened
from dragoman.cli.chat.gateway_comments import GatewayComments
from dragoman.cli.chat.one_answer import with_input
from dragoman.cli.chat.toolbox import servers_of
from dragoman.core.backend import PromptProgress
from dragoman.core.errors import ConfigError
from dragoman.core.messages import ToolCall
from dragoman.mcp_client.config import McpServerConfig

CALL = ToolCall("c", "add", '{"a": 1}')
LONG_CALL = ToolCall("c", "add", '{"text": "' + "x" * 500 + '"}')


def refusals(answers: list[str], *calls: ToolCall) -> tuple[list[str], list[str]]:
    """The refusals of these calls, and what was printed."""
    questions: list[str] = []
    left = iter(answers)

    def ask(question: str) -> str:
        questions.append(question)
        return next(left)

    approval = Approval(ask, questions.append, accept_all=False)
    return [approval.refusal(call) for call in calls], questions


@pytest.mark.parametrize(("answer", "refusal"), [("y", ""), ("YES", ""), ("n", DECLINED), ("", DECLINED)])
def test_call_runs_only_after_yes(answer: str, refusal: str) -> None:
    assert refusals([answer], CALL)[0] == [refusal]


def test_unclear_answer_is_asked_again() -> None:
    assert refusals(["what", "y"], CALL)[0] == [""]


def test_always_applies_to_one_tool() -> None:
    other = ToolCall("d", "remove", "{}")
    verdicts, questions = refusals(["a", "n"], CALL, CALL, other)
    assert verdicts == ["", "", DECLINED]
    assert len(questions) == 2


def test_long_arguments_can_be_shown_before_the_decision() -> None:
    verdicts, questions = refusals(["s", "n"], LONG_CALL)
    assert verdicts == [DECLINED]
    assert "x" * 500 in questions[1]


def test_without_terminal_nothing_runs_unless_all_is_accepted() -> None:
    assert Approval(None, print, accept_all=False).refusal(CALL) == NOT_ASKED
    assert Approval(None, print, accept_all=True).refusal(CALL) == ""


def test_shortened_text_names_the_rest() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdef", 3) == "abc… (3 more characters)"


@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_comments_of_a_gateway_are_read_between_events(size: int) -> None:
    stream = (
        b": dragoman-progress prompt 1200/7600 tokens, about 40 s left\n\n: ping\n\n"
        b'data: {"x": ": dragoman-warnings no"}\n\n: dragoman-warnings content_dropped: image\n\n'
    )
    progress: list[PromptProgress] = []
    warnings: list[str] = []
    comments = GatewayComments(progress.append, warnings.append)

    async def pieces() -> AsyncGenerator[bytes, None]:
        for at in range(0, len(stream), size):
            yield stream[at : at + size]

    passed = [piece async for piece in comments.wrap_model_output("/v1/chat/completions", None, pieces())]
    assert b"".join(passed) == stream
    assert progress == [PromptProgress(1200, 7600)]
    assert warnings == ["content_dropped: image"]


def test_mcp_option_names_setting_url_or_command() -> None:
    configured = {"files": McpServerConfig(url="http://127.0.0.1:1/mcp")}
    program = f"{sys.executable} -u 'my server.py' --root /srv"
    servers = servers_of(["files", "http://localhost:9/mcp", program, program], configured)
    assert list(servers) == ["files", "localhost", "my_server", "my_server2"]
    assert servers["files"] is configured["files"]
    assert servers["localhost"].url == "http://localhost:9/mcp"
    assert servers["my_server"].command == (sys.executable, "-u", "my server.py", "--root", "/srv")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("flies", "got 'flies'; did you mean 'files'?"),
        ("no-such-program", "got 'no-such-program'; the settings have files"),
        ("python 'x", "expected a command line"),
        ("", "got ''"),
    ],
)
def test_unknown_mcp_server_is_reported(value: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        servers_of([value], {"files": McpServerConfig(url="http://127.0.0.1:1/mcp")})
    assert message in str(error.value)


def test_text_of_pipe_is_a_block_that_it_cannot_end() -> None:
    assert with_input("", "text") == "text"
    assert with_input("Review", "a\nb") == "Review\n\nText from standard input:\n\n```\na\nb\n```"
    assert with_input("Review", "````\n").startswith("Review\n\nText from standard input:\n\n`````\n")
