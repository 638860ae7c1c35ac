"""A request is trimmed to the tokens that a model reads in a given time."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import agents, dialects
from dragoman.core.messages import Message, Request, Role, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.core.repeated_call import reask_request
from dragoman.core.token_estimate import GENERIC
from dragoman.prompting import hints, trim
from dragoman.prompting.prompt_budget import Budget, budget_for, fit_request, head_tokens
from support import client_recordings, cpu_cost

SENT = {name: sent for name, sent in client_recordings.recorded() if name.endswith(" 1") and "sdks" not in name}
TOOLS = {
    "claude_code": agents.get("claude").tools,
    "codex": agents.get("codex").tools,
    "opencode": agents.get("opencode").tools,
}


def asked(name: str) -> Request:
    dialect = next(d for d in map(dialects.get, dialects.names()) if d.path == SENT[name].path)
    return dialect.read_request(SENT[name].body)


def tools(name: str) -> tuple[str, ...]:
    return next(tools for agent, tools in TOOLS.items() if name.startswith(agent))


def request(*said: tuple[str, str], names: str = "read edit search browse", **more: Any) -> Request:
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where. " * 9}, "n": {"type": "integer"}},
        "required": ["path"],
    }
    offered = tuple(Tool(name, "Does it. " * 30, json.dumps(schema)) for name in names.split())
    messages = tuple(Message(role, (Text(text),)) for role, text in said)  # type: ignore[arg-type]
    return Request("m", messages, offered, **more)


@pytest.mark.parametrize("name", SENT)
def test_head_tokens_are_within_budget_or_minimal(name: str) -> None:
    whole = asked(name)
    least = fit_request(whole, "off", Budget(1, tools(name)), GENERIC)
    for tokens in (100_000, 4_000, 1_500, 600):
        made = fit_request(whole, "off", Budget(tokens, tools(name)), GENERIC)
        assert made.head_tokens <= max(tokens, least.head_tokens)
        assert made.head_tokens == head_tokens(made.trimmed.request, GENERIC)
        names = [tool.name for tool in made.trimmed.request.tools]
        assert set(names) <= {tool.name for tool in whole.tools}
        assert not set(names) & set(made.trimmed.omitted_tools)
        assert len(names) + len(made.trimmed.omitted_tools) == len(whole.tools)


@pytest.mark.parametrize("name", SENT)
def test_minimal_agent_prompt_is_read_within_a_minute(name: str) -> None:
    made = fit_request(asked(name), "tools", budget_for(60, 20, tools(name)), GENERIC)
    assert made.head_tokens <= 720
    assert {tool.name for tool in made.trimmed.request.tools} & set(tools(name))


def test_all_requests_of_conversation_are_trimmed_alike() -> None:
    head = (("system", "You are an agent.\n" + "Mind the style of the code. " * 80), ("user", "hello"))
    first = request(*head)
    later = request(*head, ("assistant", "Hello!"), ("user", "go on " * 900), ("system", "A note. " * 900))
    for tokens in (40, 200, 400, 5_000):
        budget = Budget(tokens, ("read", "edit"))
        one, other = (fit_request(each, "off", budget, GENERIC).trimmed.request for each in (first, later))
        assert one.tools == other.tools
        assert other.messages[: len(one.messages)] == one.messages


def test_common_tools_are_dropped_last() -> None:
    asked = request(("system", "You are an agent."), ("user", "hi"))
    seen = []
    for tokens in range(600, 0, -5):
        names = [
            tool.name
            for tool in fit_request(asked, "off", Budget(tokens, ("edit", "read")), GENERIC).trimmed.request.tools
        ]
        if names not in seen:
            seen.append(names)
    assert seen == [["read", "edit", "search", "browse"], ["read", "edit"], ["edit"]]


def test_required_tools_are_not_dropped() -> None:
    named = request(("user", "hi"), tool_choice=ToolChoice("named", "browse"))
    made = fit_request(named, "off", Budget(1, ("read",)), GENERIC).trimmed
    assert {tool.name for tool in made.request.tools} == {"read", "browse"}
    free = request(("user", "hi"), tool_choice=ToolChoice("required"))
    assert fit_request(free, "off", Budget(1, ("read",)), GENERIC).trimmed.omitted_tools == ()


@pytest.mark.parametrize("names", [(), ("unknown",)])
def test_all_tools_are_kept_without_common_tools(names: tuple[str, ...]) -> None:
    made = fit_request(request(("user", "hi")), "off", Budget(1, names), GENERIC)
    assert (made.tier, len(made.trimmed.request.tools)) == ("max", 4)


def test_request_is_unchanged_without_budget_or_within_it() -> None:
    asked = request(("system", "You are an agent."), ("user", "hi"))
    assert fit_request(asked, "off", Budget(0, ("read",)), GENERIC).trimmed.request is asked
    assert fit_request(asked, "off", Budget(9_999, ("read",)), GENERIC).trimmed.request is asked
    assert budget_for(60, 0.0, ("read",)) == Budget(0, ("read",))


def test_user_text_is_last_in_max_tier() -> None:
    said = (
        ("system", "You are an agent.\nBe kind.\n - Platform: linux"),
        ("user", "hello"),
        ("developer", "# Environment\n - Primary working directory: /w\n" + "More of it. " * 60),
    )
    first, last = trim.trim_request(request(*said), "max", GENERIC).request.messages
    assert last == Message("user", (Text("hello"),))
    text = "\n".join(part.text for part in first.parts if isinstance(part, Text))
    assert text.splitlines() == [
        "You are an agent.",
        " - Platform: linux",
        " - Primary working directory: /w",
        trim.HINT,
    ]


@pytest.mark.parametrize(
    ("described", "hint"),
    [
        ((), None),
        (("Tells the weather.", "Profiles a person."), trim.HINT),
        (("Tells the weather.", "Reads a file."), trim.FILES_HINT),
        (("Executes shell commands.",), trim.FILES_HINT),
    ],
)
def test_max_tier_hints_when_to_call_tools(described: tuple[str, ...], hint: str | None) -> None:
    offered = tuple(Tool(f"tool_{n}", words) for n, words in enumerate(described))
    asked = replace(request(("system", "You are an agent. " + "Mind the style. " * 80), ("user", "hi")), tools=offered)
    first = trim.trim_request(asked, "max", GENERIC).request.messages[0]
    assert [part.text for part in first.parts if isinstance(part, Text)][1:] == ([hint] if hint else [])


FILE_TOOLS = (Tool("bash", "Runs a command."), Tool("read", "Reads a file."), Tool("plan", "Plans."))
TOOL_HINT = "\nCall one of bash, read if this is about files or commands."


def shown(*said: tuple[str, str], tools: tuple[Tool, ...] = FILE_TOOLS, **more: Any) -> list[str]:
    """Returns the texts of the messages after the system message in the tier `max`."""
    words = ("system", "You are an agent. " + "Mind the style. " * 80)
    made = trim.trim_request(replace(request(words, *said), tools=tools, **more), "max", GENERIC).request
    return ["".join(part.text for part in m.parts if isinstance(part, Text)) for m in made.messages[1:]]


@pytest.mark.parametrize(
    "text",
    [
        "What does the file notes.txt say?",
        "read notes.txt and say what it holds",
        "List the files in this folder.",
        "run git status",
        "Please run it.\nrun the tests",
        "Fix the failing tests",
        "Explain this code",
        "What is in /etc/hosts?",
        "Sieh in src/haupt.py nach",
    ],
)
def test_user_text_about_files_or_commands_gets_tool_hint(text: str) -> None:
    assert shown(("user", text)) == [text + TOOL_HINT]


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "thanks!",
        "What is 7 times 8?",
        "What is the capital of France?",
        "What is a file descriptor?",
        "How do I delete a folder in Linux?",
        "What does `sorted` do in Python 3.11?",
        "Do you run on Linux, i.e. here, and/or elsewhere?",
    ],
)
def test_other_user_text_gets_no_tool_hint(text: str) -> None:
    assert shown(("user", text)) == [text]


def test_tool_hint_is_added_only_to_user_text() -> None:
    text = "read notes.txt"
    assert shown(("user", text), tools=(Tool("plan", "Plans."),)) == [text]
    assert shown(("user", text), tools=FILE_TOOLS[1:]) == [f"{text}\nCall read if this is about files or commands."]
    assert shown(("user", text), tool_choice=ToolChoice("none")) == [text]
    assert shown(("user", "hi"), ("assistant", text), ("tool", text)) == ["hi", text, text]
    reminder = "<system-reminder>\nlook at notes.txt\n</system-reminder>"
    assert shown(("user", "hi"), ("assistant", "ho"), ("user", reminder)) == ["hi", "ho", reminder]


def result(*ids: str, role: Role = "tool", is_error: bool = False) -> Message:
    return Message(role, tuple(ToolResult(id, (Text("Meet Ada."),), is_error=is_error) for id in ids))


CALLS = Message("assistant", (ToolCall("1", "read", "{}"), ToolCall("2", "read", "{}")))
QUESTION = Message("user", (Text("What does notes.txt hold?"),))
REPEATED_QUESTION = Message("user", (Text(hints.RESULT_HINT + "What does notes.txt hold?"),))


@pytest.mark.parametrize("results", [(result("1"), result("2")), (result("1", "2", role="user"),)])
def test_question_is_repeated_after_results(results: tuple[Message, ...]) -> None:
    thanks = Message("user", (Text("thanks"),))
    asked = (QUESTION, CALLS, *results)
    assert hints.add_hints(asked, ()) == (*asked, REPEATED_QUESTION)
    later = (*asked, CALLS, *results, Message("assistant", (Text("Ada."),)), thanks)
    assert hints.add_hints(later, ())[: len(asked) + 1] == (*asked, REPEATED_QUESTION)
    assert hints.add_hints(later, ())[-1] == thanks
    assert hints.remove_hints(hints.add_hints(later, ("read",))) == later


def test_user_text_after_results_stays_last() -> None:
    stop = Message("user", (Text("Stop."),))
    said = (QUESTION, CALLS, result("1", "2"))
    assert hints.add_hints((*said, stop), ()) == (*said, REPEATED_QUESTION, stop)
    said = (QUESTION, CALLS, Message("user", (*result("1", "2").parts, Text("Stop."))))
    assert hints.add_hints(said, ()) == said


def test_reask_message_gets_no_tool_hint() -> None:
    """The message repeats the user's question, so the hint would cause the same call again."""
    once = replace(request(), messages=(QUESTION, CALLS, result("1", "2")))
    again = reask_request(once, ToolCall("", "read", "{}"))
    assert "notes.txt" in str(again.messages[-1])
    assert hints.add_hints(again.messages, ("read",))[-1] == again.messages[-1]
    failed = (QUESTION, CALLS, result("1", "2", is_error=True), Message("user", (Text("Look at notes.txt"),)))
    assert hints.add_hints(failed, ("read",))[-1] == failed[-1]


def test_failed_result_gets_no_result_hint() -> None:
    said = (QUESTION, CALLS, result("1", "2", is_error=True))
    assert hints.add_hints(said, ()) == said


def test_long_question_is_repeated_truncated() -> None:
    said = (Message("user", (Text("x" * 999),)), CALLS, result("1"))
    assert hints.add_hints(said, ())[-1] == Message(
        "user", (Text(f"{hints.RESULT_HINT}{'x' * hints.MAX_QUESTION_CHARS} …"),)
    )


def test_agent_reminder_is_dropped_but_project_instructions_are_kept() -> None:
    reminder = "<system-reminder>\nEnd commits so.\nContents of /w/CLAUDE.md:\n\nUse tabs.\n</system-reminder>"
    made = request(("user", reminder), names="read")
    made = replace(made, messages=(Message("user", (Text(reminder), Text("hello"))),))
    first, last = trim.trim_request(made, "max", GENERIC).request.messages
    assert last == Message("user", (Text("hello"),))
    assert first.parts[0] == Text("Contents of /w/CLAUDE.md:\n\nUse tabs.\n</system-reminder>")


@pytest.mark.parametrize("piece", ["a", "a-", "1", "the a ", "a.", "which ", "/", "~/", " ", "\n", "<system-reminder>"])
def test_hints_are_added_in_linear_time(piece: str) -> None:
    def work(n: int) -> Callable[[], object]:
        said = (Message("user", (Text(piece * (n // len(piece))),)),)
        return partial(hints.add_hints, said, ("read",))

    assert cpu_cost.growth(work, 5_000, 20_000, most=2.5) < 2.5


def test_tier_and_omitted_tools_are_read_from_the_warning() -> None:
    (warning,) = trim.TrimmedRequest(Request("m", ()), 5, ("read", "search")).warnings("max")
    assert trim.parse_warning(warning.message) == ("max", ("read", "search"))
    (warning,) = trim.TrimmedRequest(Request("m", ()), 5).warnings("tools")
    assert trim.parse_warning(warning.message) == ("tools", ())
    assert trim.parse_warning("another warning") == ("off", ())
