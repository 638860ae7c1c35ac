"""`--explain` always ends with a line that says what to change, or that nothing has to be changed."""

import json
import os
from pathlib import Path

import pytest

from dragoman import explain, formats
from dragoman.api.advice import CHANGE, NOTHING, ReadContext, advice
from dragoman.cli import main
from dragoman.core.messages import ToolCall
from support.sampling import sample

TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
PLAIN = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
FORMATS = (
    "auto",
    "hermes",
    "glm",
    "mistral",
    "llama3_json",
    "harmony",
    "gemma4",
    "qwen3_xml",
    "deepseek_v3",
    "kimi_k2",
)
OUTCOMES = {
    "a call": ("CALL", (), f"{NOTHING}: the calls are whole"),
    "text": ("Hello.", (), f"{NOTHING}: the text has no call"),
    "nothing": ("", (), "give the model's raw text"),
    "white space": ("\n \n", (), "give the model's raw text"),
    "plain JSON": (f"Sure.\n{PLAIN}", (), "--lenient"),
    "a fence": (f"Sure.\n```json\n{PLAIN}\n```", (), "--lenient"),
    "plain JSON and text": (f"Sure.\n{PLAIN}\nThat is how.", ("--lenient",), 'tool_choice "required"'),
    "a fence and text": (f"Sure.\n```json\n{PLAIN}\n```\nThat is how.", ("--lenient",), 'tool_choice "required"'),
    "an unknown tool": ("OTHER", (), "--tools"),
    "another format": ("<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>", (), "--format"),
    "a word of a tool": ("I would ask get_weather.", (), 'tool_choice "required"'),
    "a cut call": ("CUT", ("--truncated",), "max_tokens"),
    "a call that ends": ("CUT", (), "max_tokens"),
}


@pytest.fixture(autouse=True)
def unwrapped_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables line wrapping."""
    monkeypatch.setattr("dragoman.cli.parse.get_terminal_size", lambda _: os.terminal_size((0, 0)))


def last_line(text: str, name: str, flags: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (folder / "reply.txt").write_text(text)
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    files = [str(folder / "reply.txt"), "--tools", str(folder / "tools.json")]
    assert main(["parse", "--explain", "--format", name, *flags, *files]) == 0
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("outcome", "name"), [(outcome, name) for outcome in OUTCOMES for name in sample(FORMATS, 5, outcome)]
)
def test_explain_ends_with_advice(outcome: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, flags, wanted = OUTCOMES[outcome]
    writes = formats.get(name)
    call = writes.write_calls([ToolCall("call00001", "get_weather", '{"city": "Paris"}')])
    if text in ("CALL", "OTHER", "CUT"):
        other = call.replace("get_weather", "set_lights")
        text = {"CALL": call, "OTHER": other, "CUT": call[: call.index("Paris") + 3]}[text]
    said = last_line(text, name, flags, tmp_path, capsys)
    assert said.startswith((CHANGE, NOTHING))
    exceptions = {
        ("another format", "auto"): NOTHING,
        ("another format", "qwen3_xml"): NOTHING,
        ("an unknown tool", "llama3_json"): CHANGE,
    }
    assert exceptions.get((outcome, name), wanted) in said


REASONING = [name for name in formats.names() if formats.get(name).reasoning_tags]


@pytest.mark.parametrize("name", sample(REASONING, 20, "reasoning"))
def test_explain_names_reasoning_for_calls_in_closed_reasoning(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opener, closer = next(iter(formats.get(name).reasoning_tags.items()))
    call = formats.get(name).write_calls([ToolCall("call00001", "get_weather", '{"city": "Paris"}')])
    said = last_line(f"{opener}I could {call} now.{closer}No.", name, (), tmp_path, capsys)
    assert said.startswith(CHANGE)
    assert "reasoning" in said or "--format" in said
    assert "reasoning" in last_line(f"{opener}I wonder", name, ("--truncated",), tmp_path, capsys)


def test_explain_without_tools_suggests_tools_and_lenient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reply.txt").write_text(f"Sure.\n{PLAIN}")
    assert main(["parse", "--explain", str(tmp_path / "reply.txt")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("--tools FILE --lenient")


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("where", ["gateway", "native"])
def test_gateway_advice_contains_no_flags(outcome: str, where: str) -> None:
    text, flags, _ = OUTCOMES[outcome]
    call = formats.get("hermes").write_calls([ToolCall("call00001", "get_weather", '{"city": "Paris"}')])
    text = {"CALL": call, "OTHER": call.replace("get_", "set_"), "CUT": call[:60]}.get(text, text)
    cut = "--truncated" in flags
    for name in ("hermes", "mistral"):
        spans = explain(text, name, TOOLS, lenient="--lenient" in flags, finish_reason="length" if cut else "stop")
        said = advice(spans, ReadContext("native" if where == "native" else "gateway", offered=True, cut=cut))
        assert said.startswith((CHANGE, NOTHING))
        assert "--" not in said
        assert "\n" not in said
