"""The probe of real servers with a real model: Dragoman itself, and llama.cpp's own server."""

import asyncio
import json
from pathlib import Path

import pytest

from dragoman import dialects
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import DECISIVE_CHECKS, probe
from support.gateway import MODEL, SMALL, apart, running
from support.servers import real, rounds

pytestmark = pytest.mark.model
OTHER_CHECKS = ("streams", "stop strings", "completions", "usage", "context")


MAX_TOKENS = 32
"""Number of tokens that suffices for a call with one argument."""
NATIVE_CHECKS = DECISIVE_CHECKS[:3]
"""The checks that decide for servers whose tools work; the other checks try prompts of Dragoman."""


@pytest.mark.every
def test_probe_of_dragoman_finds_native_tools(tmp_path: Path) -> None:
    """The other APIs are tested without a model in test_probe.py."""
    with running(tmp_path) as own:
        report = asyncio.run(
            probe(
                HttpConfig(url=own.url),
                {},
                MODEL,
                check_names=(*DECISIVE_CHECKS, *OTHER_CHECKS),
                tokens=MAX_TOKENS,
                within_s=120,
            )
        )
    found = {finding.what: finding for finding in report.findings}
    assert report.provider == "dragoman"
    assert report.choice.tool_mode == "native"
    assert found["tool_choice"].facts == {"required": "yes", "named": "yes", "none": "yes"}
    assert found["usage"].facts["whole"]
    assert found["streams"].text.endswith("nothing odd")
    assert found["completions"].verdict == "no"
    assert found["context"].facts == {"tokens": SMALL["embedded.context_window"]}


@pytest.mark.parametrize(
    ("mode", "verdict", "words", "format"),
    [
        pytest.param(
            "native",
            "yes",
            'after two examples: get_weather({"city": "Paris"}), whole and streamed',
            "",
            marks=pytest.mark.every,
        ),
        ("parse", "no", "after two examples: the call is left in the text, in the format hermes", ""),
    ],
)
def test_probe_of_llama_server_detects_tool_mode(mode: str, verdict: str, words: str, format: str) -> None:
    """The test of `serve` below has a server that drops tools."""
    beside = (*OTHER_CHECKS, "constrained") if mode == "native" else ()
    with real.llama(mode) as server:
        report = asyncio.run(
            probe(
                HttpConfig(url=server.url), {}, check_names=(*NATIVE_CHECKS, *beside), tokens=MAX_TOKENS, within_s=120
            )
        )
    found = {finding.what: finding for finding in report.findings}
    assert report.provider == "llama_cpp"
    assert report.version
    assert report.models == (server.model,)
    assert found["chat template"].verdict == "yes"
    assert found["tool calls"].verdict == verdict
    assert words in found["tool calls"].text
    assert (report.choice.tool_mode, report.choice.call_format) == (mode, format)
    if not beside:
        return
    assert found["streams"].text.endswith("nothing odd")
    assert found["stop strings"].verdict == "yes"
    assert found["completions"].verdict == "yes"
    assert found["usage"].facts == {"whole": True, "streamed": True, "cached": True}
    assert found["context"].facts == {"tokens": 4096}
    assert found["constrained"].facts == {"gbnf": "yes", "json_schema": "yes"}
    assert report.choice.constrain == ("gbnf", "json_schema")


@pytest.mark.every  # 25 s; tests/integration/backends/test_auto_mode.py does it with a fake server
def test_serve_measures_tool_mode_of_model(tmp_path: Path) -> None:
    """With a server that drops tools, and a 135M model that writes calls in one format only."""
    dialect = dialects.get("anthropic_messages")
    with (
        real.llama("prompt") as server,
        running(tmp_path, "--upstream", server.url, "--log-format", "text", settings=apart(tmp_path)) as own,
    ):
        asked = dialect.write_request(rounds.QUESTION, server.model).body
        first = own.post(dialect.path, asked).json()
        assert first["stop_reason"] == "end_turn"
        line = own.line(f"{server.model} is asked in tool mode prompt, format pythonic: tools do not reach the model")
        assert "dropped: the prompt has 41 tokens with tools and without" in line
        (kept,) = (tmp_path / "cache" / "probes").glob("*.json")
        assert json.loads(kept.read_text())["choice"]["constrain"] == ["gbnf", "json_schema"]
        second = own.post(dialect.path, asked).json()
    assert second["stop_reason"] == "tool_use"
    (call,) = [block for block in second["content"] if block["type"] == "tool_use"]
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Paris"})
