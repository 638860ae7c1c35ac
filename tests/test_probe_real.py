"""The probe of real servers with a real model: Dragoman itself, by each of its APIs, and llama.cpp's own server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import dialects
from dragoman.backends.http_config import HttpConfig
from dragoman.backends.probe import DECISIVE, Report, probe
from gateway import MODEL, apart, running
from servers import real, rounds

pytestmark = pytest.mark.model
BESIDE = ("streams", "stop strings", "completions", "usage", "context")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the embedded model."""
    with running(tmp_path_factory.mktemp("own")) as gateway:
        yield gateway.url


FEW = 24
"""Tokens: whether a call is begun can be told by them."""


def probed(url: str, *only: str, api: str = "openai_chat") -> Report:
    return asyncio.run(
        probe(HttpConfig(url=url, api=api), {}, MODEL, only=(*DECISIVE, *only), tokens=FEW, within_s=120)
    )


@pytest.mark.parametrize("api", dialects.names())
def test_dragoman_itself_is_probed_by_each_of_its_apis(own: str, api: str) -> None:
    report = probed(own, *(BESIDE if api == "openai_chat" else ("usage",)), api=api)
    found = {finding.what: finding for finding in report.findings}
    assert report.kind == "dragoman"
    assert report.choice.mode == "native"
    assert found["tool_choice"].facts == {"required": "yes", "named": "yes", "none": "yes"}
    assert found["usage"].facts["whole"]
    if "streams" in found:
        assert found["streams"].words.endswith("nothing odd")
        assert found["completions"].verdict == "no"
        assert found["context"].facts == {"tokens": 8192}


@pytest.mark.parametrize(
    ("mode", "verdict", "words", "format"),
    [
        ("native", "yes", 'behind two examples: get_weather({"city": "Paris"}), whole and streamed', ""),
        ("parse", "no", "behind two examples: the call is left in the text, in the format hermes", ""),
        ("inject", "no", "dropped: the prompt has 41 tokens with tools and without", "pythonic"),
    ],
)
def test_a_llama_server_is_asked_as_it_was_started(mode: str, verdict: str, words: str, format: str) -> None:
    beside = (*BESIDE, "constrained") if mode == "inject" else ()
    with real.llama(mode) as server:
        report = asyncio.run(probe(HttpConfig(url=server.url), {}, only=(*DECISIVE, *beside), within_s=120))
    found = {finding.what: finding for finding in report.findings}
    assert report.kind == "llama_cpp"
    assert report.version
    assert report.models == (server.model,)
    assert found["chat template"].verdict == ("no" if mode == "inject" else "yes")
    assert found["tool calls"].verdict == verdict
    assert words in found["tool calls"].words
    assert (report.choice.mode, report.choice.format) == (mode, format)
    if not beside:
        return
    assert found["streams"].words.endswith("nothing odd")
    assert found["stop strings"].verdict == "yes"
    assert found["completions"].verdict == "yes"
    assert found["usage"].facts == {"whole": True, "streamed": True, "cached": True}
    assert found["context"].facts == {"tokens": 4096}
    assert found["constrained"].facts == {"gbnf": "yes", "llguidance": "yes", "json_schema": "yes"}
    assert report.choice.constrain == ("gbnf", "llguidance", "json_schema")


def test_serve_finds_out_by_itself_how_a_model_is_asked(tmp_path: Path) -> None:
    """A server that drops tools, and a model of 135M that writes calls in one format only: from prose to calls."""
    dialect = dialects.get("anthropic_messages")
    with (
        real.llama("inject") as server,
        running(tmp_path, "--server", server.url, "--log", "text", settings=apart(tmp_path)) as own,
    ):
        asked = dialect.write_request(rounds.QUESTION, server.model).body
        first = own.post(dialect.path, asked).json()
        assert first["stop_reason"] == "end_turn"
        own.line(f"{server.model} is asked in mode inject, format pythonic: tools do not reach the model")
        second = own.post(dialect.path, asked).json()
    assert second["stop_reason"] == "tool_use"
    (call,) = [block for block in second["content"] if block["type"] == "tool_use"]
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Paris"})
