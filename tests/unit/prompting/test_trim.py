"""Prompt trimming: what is removed, what is always kept, and that it is deterministic."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import forty
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import models
from dragoman.cli import main
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError
from dragoman.core.events import Notice
from dragoman.core.token_estimate import GENERIC
from dragoman.prompting import trim
from dragoman.prompting.trim import first_sentence
from support import client_recordings
from support.events import all_events
from support.fake_upstream import ask, gateway, server, whole
from support.gateway import MESSAGES
from support.scripted_llama import ScriptedLlama

LONG = "This line has a first sentence. " + "It goes on and on about things that a small model need not know. " * 5
SCHEMA = {
    "type": "object",
    "title": "Run",
    "description": "All of it.",
    "properties": {
        "command": {"type": "string", "description": "The command. Quote paths with spaces.", "maxLength": 99},
        "description": {"type": "string", "description": "What it does."},
        "title": {"enum": ["a", "b"], "default": {"description": "kept"}, "examples": ["x"]},
        "many": {"type": "array", "items": {"anyOf": [{"type": "number", "description": "n", "minimum": 1}]}},
    },
    "required": ["command", "description"],
    "$defs": {"description": {"type": "object", "description": "d", "properties": {}}},
}
TOOL = v.Tool("Bash", "Runs a command. " + "Never do this or that. " * 40, json.dumps(SCHEMA))


def request(*messages: v.Message, tools: tuple[v.Tool, ...] = (TOOL,)) -> v.Request:
    return v.Request("m", messages, tools)


def said(role: v.Role, *texts: str) -> v.Message:
    return v.Message(role, tuple(map(v.Text, texts)))


def cut(text: str, tier: str = "aggressive") -> str:
    """Returns the system text after trimming with this tier."""
    message = trim.trim_request(request(said("system", text)), tier, GENERIC).request.messages[0]
    return "".join(part.text for part in message.parts if isinstance(part, v.Text))


def tool(tier: str) -> v.Tool:
    return trim.trim_request(request(), tier, GENERIC).request.tools[0]


def test_tier_off_changes_nothing() -> None:
    asked = request(said("system", LONG))
    made = trim.trim_request(asked, "off", GENERIC)
    assert (made.request, made.saved_tokens, made.warnings("off")) == (asked, 0, ())


def test_tool_description_is_trimmed_to_first_sentence() -> None:
    for tier in ("tools", "aggressive"):
        assert (tool(tier).name, tool(tier).description) == ("Bash", "Runs a command.")


def test_unterminated_first_sentence_is_truncated() -> None:
    endless = v.Tool("t", "word " * 500, '{"properties": {"a": {"description": "%s"}}}' % ("word " * 500))
    (left,) = trim.trim_request(request(tools=(endless,)), "tools", GENERIC).request.tools
    assert 190 < len(left.description) < 204
    assert 70 < len(json.loads(left.parameters)["properties"]["a"]["description"]) < 84


def test_text_without_spaces_is_truncated() -> None:
    assert first_sentence("読む。" + "書く。" * 99, 200) == "読む。"
    assert first_sentence("読" * 300, 200) == "読" * 200 + " …"


def test_schema_keeps_all_validation_keywords() -> None:
    expected: dict[str, Any] = json.loads(json.dumps(SCHEMA))
    del expected["title"], expected["description"], expected["$defs"]["description"]["description"]
    del expected["properties"]["command"]["description"], expected["properties"]["description"]["description"]
    del expected["properties"]["title"]["examples"], expected["properties"]["many"]["items"]["anyOf"][0]["description"]
    assert json.loads(tool("aggressive").parameters) == expected
    assert list(json.loads(tool("aggressive").parameters)["properties"]) == list(SCHEMA["properties"])


def test_tier_tools_keeps_short_parameter_descriptions() -> None:
    properties = json.loads(tool("tools").parameters)["properties"]
    assert properties["command"] == {"type": "string", "description": "The command.", "maxLength": 99}
    assert properties["description"]["description"] == "What it does."


@pytest.mark.parametrize("schema", ['{"a', "[" * 100_000, '{"const": 1.50, "x": 9223372036854775808123}', '"text"'])
def test_invalid_schema_and_numbers_are_kept_verbatim(schema: str) -> None:
    made = trim.trim_request(request(tools=(v.Tool("f", "d" * 999, schema),)), "aggressive", GENERIC)
    assert made.request.tools[0].parameters.replace(" ", "") == schema.replace(" ", "")


def test_vendor_tools_are_not_trimmed() -> None:
    own = v.Tool("search", "Searches. " * 99, kind="web_search_20250305")
    assert trim.trim_request(request(tools=(TOOL, own)), "aggressive", GENERIC).request.tools[1] == own


def test_user_text_and_results_are_not_trimmed() -> None:
    call = v.ToolCall("c", "Bash", "{}")
    asked = request(said("user", LONG), v.Message("assistant", (v.Text(LONG), call)), said("user", LONG))
    results = v.Message("tool", (v.ToolResult("c", (v.Text(LONG),)),))
    asked = replace(asked, messages=(*asked.messages, results))
    assert trim.trim_request(asked, "aggressive", GENERIC).request.messages == asked.messages


SYSTEM = [
    ("a long line", LONG, "This line has a first sentence."),
    (
        "an item with an aside",
        f"- plan: {LONG.strip()} (Tools: *)",
        "- plan: This line has a first sentence. (Tools: *)",
    ),
    ("an abbreviation", "Use it, e.g. So. " + "More of it follows here. " * 9, "Use it, e.g. So."),
    ("a long sentence", "word " * 99, ("word " * 99).strip()),
    ("what forbids", f"{LONG}Never push to main. And so on.", "This line has a first sentence. Never push to main."),
    ("what shouts", f"IMPORTANT: {LONG}", f"IMPORTANT: {LONG}"),
    ("a tag", f"<description>{LONG}</description>", f"<description>{LONG}</description>"),
    ("an example", "Do.\n<example>\nuser: hi\n</example>\nDone.", "Do.\nDone."),
    ("a fence", "Do.\n```markdown\nx: 1\n```\nDone.", "Do.\nDone."),
    ("empty lines", "a\n\n\n\nb", "a\n\nb"),
    ("a long section", "# A\n" + f"{'x' * 150}\n" * 20 + "Date: today", "# A\n" + f"{'x' * 150}\n" * 8 + "Date: today"),
    ("a new section", f"# A\n{'x' * 1300}\n# B\n{'y' * 150}", f"# A\n{'x' * 1300}\n# B\n{'y' * 150}"),
    ("nothing", "", ""),
]


@pytest.mark.parametrize(("text", "left"), [row[1:] for row in SYSTEM], ids=[row[0] for row in SYSTEM])
def test_system_text_is_trimmed_by_line(text: str, left: str) -> None:
    assert cut(text).rstrip() == left.rstrip()


def test_last_tier_keeps_the_first_facts_up_to_a_limit() -> None:
    facts = [f"- Fact {n:02}: {'x' * 40}" for n in range(99)]
    trimmed = cut("\n".join(["You help.", *facts]), "max")
    kept = re.findall("- Fact ..: x+", trimmed)
    assert kept == facts[: len(kept)]
    assert 800 <= sum(map(len, kept)) < 800 + len(facts[0])


@pytest.mark.parametrize(
    "line",
    [
        "Contents of /home/me/CLAUDE.md (project instructions, checked into the codebase):",
        "Instructions from: /home/me/AGENTS.md",
        "--- Context from: GEMINI.md ---",
        "# AGENTS.md instructions for /home/me",
        "USER'S CUSTOM INSTRUCTIONS",
        "# Project Context",
        "<INSTRUCTIONS>",
    ],
)
def test_project_instructions_are_kept_verbatim(line: str) -> None:
    own = f"{line}\n{LONG}\n\n\n```\ncode\n```\n{LONG}"
    assert cut(f"{LONG}\n{own}") == f"This line has a first sentence.\n{own}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("One (eg. Two) is. Three", "One (eg. Two) is."),
        ("Runs `a.py` in v1.2 of it. More", "Runs `a.py` in v1.2 of it."),
        ("Two\nlines. More", "Two lines."),
        ("No end\n\nanother", "No end"),
        ("word " * 99, "word " * 39 + "word …"),
        ("x" * 300, "x" * 200 + " …"),
    ],
)
def test_first_sentence_is_found(text: str, sentence: str) -> None:
    assert first_sentence(text, 200) == sentence


@given(st.text(alphabet="aA.\n <>`#-!*:", max_size=400))
def test_trimming_is_idempotent_and_never_lengthens(text: str) -> None:
    once = cut(text)
    assert len(once) <= len(text)
    assert cut(once) == cut(cut(once))


AGENTS = {name: sent for name, sent in client_recordings.recorded() if name.endswith(" 1") and "sdks" not in name}


@pytest.mark.parametrize("tier", ["tools", "aggressive"])
@pytest.mark.parametrize("sent", AGENTS.values(), ids=AGENTS)
def test_trimmed_agent_tools_accept_same_arguments(sent: client_recordings.Sent, tier: str) -> None:
    dialect = next(d for d in map(dialects.get, dialects.names()) if d.path == sent.path)
    asked = dialect.read_request(sent.body)
    made = trim.trim_request(asked, tier, GENERIC)
    saved = GENERIC.estimate_request(asked) - GENERIC.estimate_request(made.request)
    assert made.saved_tokens == pytest.approx(saved, abs=2)
    assert [t.name for t in made.request.tools] == [t.name for t in asked.tools]
    for before, after in zip(asked.tools, made.request.tools, strict=True):
        if before.kind == "function":
            assert list(without_prose(json.loads(before.parameters))) == list(
                without_prose(json.loads(after.parameters))
            )


@pytest.mark.parametrize("sent", AGENTS.values(), ids=AGENTS)
def test_max_tier_drops_only_optional_parameters(sent: client_recordings.Sent) -> None:
    """Arguments that match the trimmed schema also match the agent's: only optional parameters are removed."""
    dialect = next(d for d in map(dialects.get, dialects.names()) if d.path == sent.path)
    asked = dialect.read_request(sent.body)
    made = trim.trim_request(asked, "max", GENERIC).request
    for before, after in zip(asked.tools, made.tools, strict=True):
        whole, cut = json.loads(before.parameters), json.loads(after.parameters)
        assert whole.get("required", []) == cut.get("required", [])
        assert cut.get("properties", {}).keys() >= set(whole.get("required", []))
        assert cut.get("properties", {}).keys() <= whole.get("properties", {}).keys()
    assert trim.trim_request(made, "max", GENERIC).request.tools == made.tools


def without_prose(schema: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Yields (path, value) of all schema parts except for prose; a property may be named like a prose keyword."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            if path.endswith("/properties") or name not in ("description", "title", "examples", "$comment"):
                yield from without_prose(value, f"{path}/{name}")
    elif isinstance(schema, list):
        for n, value in enumerate(schema):
            yield from without_prose(value, f"{path}/{n}")
    else:
        yield path, schema


def test_unknown_tier_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown tier 'agressive'; did you mean 'aggressive'.*at upstreams.far.prompt_trim"
    ):
        HttpBackend("far", HttpConfig(url="http://x", prompt_trim="agressive"), os.environ)


async def test_trimmed_request_is_sent_and_reported() -> None:
    answer = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    tools = [{"name": "Bash", "description": TOOL.description, "input_schema": SCHEMA}]
    async with server(whole(200, answer)) as behind, gateway(behind.url, prompt_trim="aggressive") as url:
        told = await ask(url, MESSAGES, False, system=LONG, tools=tools)
    ((_, _, said),) = behind.asked
    sent = json.loads(said)
    assert sent["messages"][0] == {"role": "system", "content": "This line has a first sentence."}
    assert sent["tools"][0]["function"]["description"] == "Runs a command."
    assert "prompt_trimmed" in told.headers["x-dragoman-warnings"]


def test_tokens_command_counts_and_shows_trimmed_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(AGENTS["claude_code-full 1"].body)
    assert main(["tokens", str(file), "--model", "qwen3"]) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["off", "tools", "aggressive", "max"]
    counts = {row.split()[0]: [int(n.replace(",", "")) for n in row.split()[1:]] for row in rows}
    assert list(counts) == ["tools", "system", "conversation", "all"]
    assert counts["all"] == [sum(column) for column in zip(*list(counts.values())[:3], strict=True)]
    assert counts["all"] == sorted(counts["all"], reverse=True)
    assert len(set(counts["conversation"][:3])) == 1
    assert last == "estimated for qwen3"
    assert main(["tokens", str(file), "--prompt-trim", "aggressive"]) == 0
    shown = capsys.readouterr().out
    assert "Bash: " in shown
    assert '"required":["command"]' in shown


def test_tokens_command_reports_general_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(AGENTS["claude_code-full 1"].body)
    assert main(["tokens", str(file), "--model", "nosuch"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "dragoman: the tokenizer of the model 'nosuch' is not known; this is the general estimate\n"
    assert shown.out.endswith("\nestimated for any model\n")


def test_tokens_command_rejects_json_with_prompt_trim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--json", "--prompt-trim", "max"]) == 2
    assert "leave out one of them" in capsys.readouterr().err


def test_tokens_command_rejects_invalid_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.json"
    file.write_text("[]")
    assert main(["tokens", str(file)]) == 2
    assert "expected a request of one of the APIs, got none" in capsys.readouterr().err
    assert main(["tokens", str(tmp_path / "none")]) == 2
    assert "cannot read" in capsys.readouterr().err


async def test_embedded_model_gets_trimmed_prompt() -> None:
    profile = models.default()
    embedded: Any = EmbeddedModel(
        weights.find_weights(profile.name), profile, EmbeddedConfig(prompt_trim="aggressive"), lambda _: None
    )
    embedded.engine = tap = forty.RecordingEngine(ScriptedLlama("Hello."))
    asked = replace(request(said("system", LONG), said("user", LONG)), model=profile.name)
    events = await all_events(embedded.generate(asked, ExchangeContext("1", 0, iter("ab").__next__)))
    (run,) = tap.runs
    assert run.prompt.count("It goes on and on") == 5  # in the user's text
    assert "Runs a command." in run.prompt
    assert "Never do this or that." not in run.prompt
    (told,) = (event.message for event in events if isinstance(event, Notice) and event.code == "prompt_trimmed")
    assert re.fullmatch(r"tool descriptions and system text were trimmed \(aggressive\), about \d{3} tokens", told)


def test_embedded_model_rejects_unknown_tier() -> None:
    profile = models.default()
    with pytest.raises(ConfigError, match="unknown tier 'all'"):
        EmbeddedModel(weights.find_weights(profile.name), profile, EmbeddedConfig(prompt_trim="all"), lambda _: None)
