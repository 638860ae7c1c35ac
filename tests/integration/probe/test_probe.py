"""`dragoman probe` against a gateway and scripted servers: findings, recommendation, and error messages.

The scripted servers reproduce observed behaviour of real ones (catalog/servers.toml names them).
"""

import asyncio
import json
import re
import struct
import threading
import zlib
from collections.abc import AsyncGenerator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import config, dialects, formats
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import CHECKS, DECISIVE_CHECKS, ProbeReport, discover, probe
from dragoman.backends.probe.checks.content import red_png
from dragoman.backends.probe.connect import open_connection
from dragoman.backends.probe.context import WEATHER
from dragoman.backends.probe.detect_format import DetectedFormat, find_leaked_call
from dragoman.backends.probe.server_info import ServerInfo, values_at
from dragoman.catalog import servers
from dragoman.cli import main
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, ToolCall, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.parsing.reply_reader import ReplyReader
from support.check_each import check_each
from support.probe_upstream import CHAT, calls, leaks, leaks_mistral, wants_tool
from support.scripted_backend import Scripted, serving
from support.stub_servers import NOTHING_HERE, Answer, Says, call, chat, models, odd, refused, stream


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings are cached in a temporary folder, not in the user's home."""
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))


async def probed(says: Says, *only: str, path: str = "/v1", **more: Any) -> ProbeReport:
    """Returns the probe report of a scripted server."""
    async with odd(says) as far:
        settings = HttpConfig(url=far.url + path, **more)
        return await probe(settings, {}, check_names=dict.fromkeys((*DECISIVE_CHECKS, *only)))


def of(model: Any) -> Says:
    """A server with one model `m` whose completions are written by `model`; every other path is not found."""

    def says(path: str, asked: dict[str, Any]) -> Answer:
        if path == "/v1/models":
            return models("m")
        answer: Answer = model(asked) if path == CHAT else NOTHING_HERE
        return answer

    return says


# Tool calls


def leaks_in_reasoning(asked: dict[str, Any]) -> Answer:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    return chat(asked, "", reasoning=text) if wants_tool(asked) else chat(asked, "Hello")


def drops(asked: dict[str, Any]) -> Answer:
    return chat(asked, "It is sunny in Paris.")


def counts_the_same(asked: dict[str, Any]) -> Answer:
    """A server that reports the same number of prompt tokens for every prompt."""
    return chat(asked, "It is sunny in Paris.", usage={"prompt_tokens": 5, "completion_tokens": 5})


def refuses(asked: dict[str, Any]) -> Answer:
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    return refused(words) if asked.get("tools") else chat(asked, "Hello")


def ignores_tools_unless_required(asked: dict[str, Any]) -> Answer:
    """The prompt grows with tools, but the model calls one only if `tool_choice` is `required`."""
    usage = {"prompt_tokens": 150 if asked.get("tools") else 10, "completion_tokens": 5}
    return (
        chat(asked, "", call(), usage=usage)
        if asked.get("tool_choice") == "required"
        else chat(asked, "Hm.", usage=usage)
    )


def never_calls(asked: dict[str, Any]) -> Answer:
    return chat(asked, "Hm.", usage={"prompt_tokens": 150 if asked.get("tools") else 10, "completion_tokens": 5})


def calls_when_prompted(asked: dict[str, Any]) -> Answer:
    if not asked.get("tools") and "<tools>" in str(asked["messages"]):
        return chat(asked, '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>')
    return never_calls(asked)


def calls_after_examples(asked: dict[str, Any]) -> Answer:
    """Like a small model that calls a tool only after examples of calls."""
    shown = any(message.get("tool_calls") for message in asked["messages"])
    return calls(asked) if shown else never_calls(asked)


def copies_python(asked: dict[str, Any]) -> Answer:
    """A server without tools, and a model that writes calls in one format only, and only after examples."""
    words = str(asked["messages"])
    return chat(asked, '[get_weather(city="Paris")]' if "[get_weather(city=" in words and "Oslo" in words else "Hm.")


def calls_whole_only(asked: dict[str, Any]) -> Answer:
    """Like a server whose parser for streams differs from its parser for complete responses."""
    return leaks(asked) if asked.get("stream") else calls(asked)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("model", "verdict", "words", "mode", "format"),
    [
        (calls, "yes", 'get_weather({"city": "Paris"}), whole and streamed', "native", ""),
        (leaks, "no", "the call is left in the text, in the format hermes", "parse", ""),
        (leaks_mistral, "no", "the call is left in the text, in the format mistral", "parse", ""),
        (leaks_in_reasoning, "no", "the call is left in the reasoning, in the format hermes", "parse", ""),
        (drops, "no", "dropped: the prompt has 10 tokens with tools and without", "prompt", ""),
        (counts_the_same, "unknown", "5 prompt tokens are reported for every prompt", "native", ""),
        (refuses, "no", "requires --enable-auto-tool-choice", "prompt", ""),
        (
            ignores_tools_unless_required,
            "unknown",
            "it was shown the tools (140 tokens); the model wrote 'Hm.'",
            "native",
            "",
        ),
        (never_calls, "unknown", "it was shown the tools (140 tokens)", "native", ""),
        (calls_when_prompted, "unknown", "it was shown the tools (140 tokens)", "prompt", ""),
        (calls_after_examples, "yes", "after two examples: get_weather(", "native", ""),
        (copies_python, "no", "dropped: the prompt has 10 tokens with tools and without", "prompt", "pythonic"),
        (calls_whole_only, "partly", "whole only; else the call is left in the text", "parse", ""),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_tool_call_finding_decides_tool_mode(
    model: Any, verdict: str, words: str, mode: str, format: str
) -> None:
    report = await probed(of(model))
    tools = report.found("tool calls")
    assert (tools.verdict, report.choice.tool_mode, report.choice.call_format) == (verdict, mode, format)
    assert words in tools.text
    assert report.choice.why


@pytest.mark.asyncio
async def test_recommended_format_comes_from_leaked_call_not_model_name() -> None:
    def says(path: str, asked: dict[str, Any]) -> Answer:
        return models("qwen2.5-7b") if path == "/v1/models" else leaks_mistral(asked)

    report = await probed(says)
    assert (report.choice.tool_mode, report.choice.call_format) == ("parse", "mistral")


@pytest.mark.asyncio
async def test_server_with_full_support_has_good_findings() -> None:
    report = await probed(of(calls), "parallel calls", "argument deltas", "streams", "usage")
    found = {finding.what: finding for finding in report.findings}
    assert found["parallel calls"].facts == {"calls": 2}
    assert found["argument deltas"].verdict == "no"
    assert found["tool_choice"].facts == {"required": "yes", "named": "yes", "none": "yes"}
    assert found["streams"].text.endswith("nothing odd")
    assert found["usage"].facts == {"whole": True, "streamed": True, "cached": False}


@pytest.mark.asyncio
async def calls_as_asked(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """Calls the tool that `tool_choice` names, or the first one if the question is about the weather."""
    choice, asked = request.tool_choice, str(request.messages[-1])
    name = choice.name or (request.tools[0].name if request.tools else "")
    yield Start("", "", 0)
    if choice.mode in ("required", "named") or (choice.mode == "auto" and name and "weather" in asked):
        yield ToolCallStart(0, "call_1", name)
        yield ToolCallDelta(0, '{"city": "Paris"}')
        yield ToolCallEnd(0)
    else:
        yield TextDelta("Hello.")
    yield UsageUpdate(Usage(input_tokens=10, output_tokens=5))
    yield Finish("stop")


@pytest.mark.parametrize("api", dialects.names())
async def test_dragoman_gateway_has_good_findings_for_each_api(api: str) -> None:
    async with serving(Gateway([Scripted(calls_as_asked)])) as (_, url):
        report = await probe(HttpConfig(url=url, api=api), {}, "m", check_names=(*DECISIVE_CHECKS, "streams", "usage"))
    found = {finding.what: finding for finding in report.findings}
    assert (report.provider, report.choice.tool_mode) == ("dragoman", "native")
    assert found["tool calls"].facts == {"whole": True, "streamed": True}
    assert found["tool_choice"].facts == {"required": "yes", "named": "yes", "none": "yes"}
    assert found["streams"].text.endswith("nothing odd")
    assert found["usage"].facts["whole"]


async def test_ignored_tool_choice_is_reported() -> None:
    def heeds_nothing(asked: dict[str, Any]) -> Answer:
        return (
            chat(asked, "", call()) if "weather" in str(asked["messages"]) and asked.get("tools") else chat(asked, "Hi")
        )

    report = await probed(of(heeds_nothing))
    assert report.found("tool_choice").facts == {"required": "no", "named": "no", "none": "no"}
    assert report.found("tool_choice").verdict == "no"


async def test_truncated_call_counts_as_honoured_tool_choice() -> None:
    """The truncated call arrives as text, since it is no complete call."""

    def cut(asked: dict[str, Any]) -> Answer:
        choice = asked.get("tool_choice", "auto")
        usage = {"prompt_tokens": 150 if asked.get("tools") else 10, "completion_tokens": 5}
        if choice in ("auto", "none"):
            return chat(asked, "Paris is the city of light, and", usage=usage, finish="length")
        name = "get_weather" if choice == "required" else choice["function"]["name"]
        text = f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "London, which'
        return chat(asked, text, usage=usage, finish="length")

    report = await probed(of(cut))
    assert report.found("tool_choice").facts == {"required": "yes", "named": "yes", "none": "yes"}


# Streams


@pytest.mark.asyncio
async def test_stream_deviations_are_reported() -> None:
    piece = {"id": None, "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}

    def says(asked: dict[str, Any]) -> Answer:
        if not asked.get("stream"):
            return calls(asked)
        delta = {"tool_calls": [piece]} if wants_tool(asked) else {"content": "Hello"}
        first = {"id": "a", "object": "chat.completion", "choices": [{"delta": delta}]}
        return stream(first, {"id": "b", "choices": [{"delta": {}, "finish_reason": "stop"}]}, done=False)

    report = await probed(of(says), "streams", "argument deltas", "usage")
    assert report.found("tool calls").verdict == "yes", "Dragoman reads it all the same"
    assert report.found("streams").facts["odd"] == [
        "object is 'None'",
        "object is 'chat.completion'",
        "the id changes",
        "no [DONE]",
        "finish_reason 'stop' with calls",
        "calls without index",
        "calls without id",
        "arguments are an object",
    ]
    assert report.found("argument deltas").verdict == "no"
    assert report.found("usage").verdict == "partly"


@pytest.mark.asyncio
async def test_argument_deltas_are_counted() -> None:
    def says(asked: dict[str, Any]) -> Answer:
        if not (asked.get("stream") and wants_tool(asked)):
            return calls(asked)
        said = [
            call(arguments="", id="c"),
            *({"function": {"arguments": part}} for part in ('{"ci', 'ty": "Par', 'is"}')),
        ]
        frames = [{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **each}]}}]} for each in said]
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        return stream(*({"id": "x", "object": "chat.completion.chunk", **frame} for frame in (*frames, last)))

    report = await probed(of(says), "argument deltas")
    assert report.found("argument deltas").facts == {"pieces": 3}


@pytest.mark.asyncio
async def test_missing_streaming_support_is_reported() -> None:
    report = await probed(of(lambda asked: calls({**asked, "stream": False})), "streams", "argument deltas")
    assert report.found("streams").text == "a whole body came where a stream was asked for"
    assert report.found("argument deltas").verdict == "no"
    assert report.found("tool calls").verdict == "yes"


# Other abilities


@pytest.mark.asyncio
async def test_supported_constraints_are_detected_by_unlikely_word() -> None:
    def says(asked: dict[str, Any]) -> Answer:
        if "ebnf" in asked:
            return refused("extra inputs are not permitted")
        return chat(asked, "quorfle" if "structured_outputs" in asked else "Hello, I cannot say quorfle.")

    report = await probed(of(says), "constrained")
    assert report.found("constrained").facts == {
        way.name: {"structured_outputs": "yes", "ebnf": "refused"}.get(way.name, "ignored")
        for way in servers.constraints()
    }
    assert report.choice.constrain == ("structured_outputs",)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("heeds", "verdict"), [(lambda text, stop: text[: text.index(stop)], "yes"), (lambda text, stop: text, "no")]
)
async def test_stop_string_support_is_detected(heeds: Any, verdict: str) -> None:
    text = "one, two, three, four, five, six"

    def says(asked: dict[str, Any]) -> Answer:
        stop = asked.get("stop")
        return chat(asked, heeds(text, stop[0] if isinstance(stop, list) else stop) if stop else text)

    report = await probed(of(says), "stop strings")
    assert report.found("stop strings").verdict == verdict


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("tokens", "verdict", "words"),
    [
        (90, "yes", "the model wrote 'Red' about a red one"),
        (12, "no", "taken, and not shown to the model (2 tokens more)"),
    ],
)
async def test_image_support_is_detected_by_answer_and_prompt_tokens(tokens: int, verdict: str, words: str) -> None:
    def says(asked: dict[str, Any]) -> Answer:
        seen = "image_url" in str(asked["messages"])
        return chat(asked, "Red", usage={"prompt_tokens": tokens if seen else 10, "completion_tokens": 1})

    found = (await probed(of(says), "images")).found("images")
    assert (found.verdict, found.text) == (verdict, words)


def test_probe_image_is_valid_png() -> None:
    picture, at, chunks = red_png(), 8, dict[bytes, bytes]()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, at)
        data, check = picture[at + 8 : at + 8 + size], picture[at + 8 + size : at + 12 + size]
        assert int.from_bytes(check) == zlib.crc32(kind + data)
        chunks[kind], at = data, at + 12 + size
    assert struct.unpack(">IIBB", chunks[b"IHDR"][:10]) == (64, 64, 8, 2)
    assert zlib.decompress(chunks[b"IDAT"]) == (b"\0" + b"\xff\0\0" * 64) * 64
    assert b"IEND" in chunks


@pytest.mark.asyncio
async def test_reasoning_field_is_found_and_reasoning_is_switched_off() -> None:
    asked_with: list[Any] = []

    def says(asked: dict[str, Any]) -> Answer:
        asked_with.append(asked.get("chat_template_kwargs"))
        return calls(asked) if asked_with[-1] else chat(asked, "", reasoning="Hm, hello?")

    report = await probed(of(says), "reasoning")
    assert report.found("reasoning").facts == {"fields": ["reasoning"]}
    assert report.found("tool calls").verdict == "yes"
    assert asked_with[0] is None
    assert all(asked_with[1:])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "path", "told", "tokens"),
    [
        ("vllm", "/v1/models", {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}, 4096),
        ("llama_cpp", "/props", {"build_info": "b1", "default_generation_settings": {"n_ctx": 2048}}, 2048),
        ("ollama", "/api/show", {"model_info": {"llama.context_length": 8192, "llama.x": 1}}, 8192),
        (
            "lm_studio",
            "/api/v0/models",
            {"data": [{"id": "m", "max_context_length": 9, "loaded_context_length": 7}]},
            7,
        ),
        ("exo", "/v1/models", {"data": [{"id": "n", "context_length": 5}, {"id": "m", "context_length": 6}]}, 6),
    ],
)
async def test_context_window_is_read_from_provider_specific_path(kind: str, path: str, told: Any, tokens: int) -> None:
    def says(at: str, asked: dict[str, Any]) -> Answer:
        if at == path:
            return Answer(json.dumps(told))
        return models("m") if at == "/v1/models" else calls(asked) if at == CHAT else NOTHING_HERE

    async with odd(says) as far:
        report = await probe(
            HttpConfig(url=f"{far.url}/v1", provider=kind), {}, "m", check_names=(*DECISIVE_CHECKS, "context")
        )
    assert report.found("context").facts == {"tokens": tokens}


# Identification of the provider


def signs() -> list[Any]:
    rows = [(kind, sign) for kind in servers.providers() for sign in kind.signs]
    return [pytest.param(kind, sign, id=f"{kind.name} {sign.at}") for kind, sign in rows]


EXAMPLES = {
    "^organization_owner$": "organization_owner",
    r"^llama\.cpp": "llama.cpp",
    "^BaseHTTP/": "BaseHTTP/0.6 Python/3.12",
    r"^\*$": "*",
}


def told_by(*signs: servers.ServerSign) -> dict[str, Answer]:
    """Responses by path that contain these signs."""
    told: dict[str, Answer] = {}
    for each in signs:
        path, answer = told_at(each.at, each.pattern)
        told[path] = answer._replace(headers=(*(told[path].headers if path in told else ()), *answer.headers))
    return told


def told_at(place: str, words: str) -> tuple[str, Answer]:
    """A path and a response that contains this sign."""
    said = EXAMPLES.get(words) or words.strip("^$") or "1"
    path, _, header = place.partition("@")
    if header:
        return path, models("m")._replace(headers=(f"{header}: {said}",))
    path, _, field = place.partition("#")
    value: Any = said
    for step in reversed(field.split("/")):
        value = [value] if step == "*" else {step: value}
    if isinstance(value.get("data"), list):
        value["data"][0]["id"] = "m"
    return path, Answer(json.dumps(value))


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "sign"), signs())
async def test_provider_is_identified_by_each_sign(kind: servers.Provider, sign: servers.ServerSign) -> None:
    if sign.at == "host":
        host = sign.pattern.rpartition(")")[2].strip("$").replace("\\", "")
        settings = HttpConfig(url=f"https://{host}/v1", connect_timeout_s=0.01)
        async with open_connection(settings, {}) as connection:
            assert await ServerInfo(connection, settings.url).get("host") == host
        assert sign.matches(host)
        assert not sign.matches(f"{host}.example.org")
        return
    assert await identify_provider(told_by(sign, *sign.also)) is kind


async def identify_provider(told: dict[str, Answer]) -> servers.Provider | None:
    async with odd(lambda at, _: told.get(at) or (models("m") if at == "/v1/models" else NOTHING_HERE)) as far:
        settings = HttpConfig(url=f"{far.url}/v1")
        async with open_connection(settings, {}) as connection:
            return await ServerInfo(connection, settings.url).find_provider()


COMBINED_SIGNS = [pytest.param(*each.values, id=each.id) for each in signs() if each.values[1].also]


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "sign"), COMBINED_SIGNS)
async def test_combined_sign_needs_all_parts(kind: servers.Provider, sign: servers.ServerSign) -> None:
    for left in (sign, *sign.also):
        rest = [each for each in (sign, *sign.also) if each is not left]
        assert await identify_provider(told_by(*rest)) is not kind, left.at


class Plain(BaseHTTPRequestHandler):
    """Chat Completions on Python's `http.server`, as in many small projects."""

    def do_GET(self) -> None:
        self._answer(models("m").body if self.path == "/v1/models" else '{"status": "ok"}')

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer(chat(asked, "Hello.").body)

    def _answer(self, body: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *_: Any) -> None:
        pass


@pytest.mark.asyncio
async def test_python_http_server_has_no_known_provider() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Plain) as far:
        threading.Thread(target=far.serve_forever, daemon=True).start()
        settings = HttpConfig(url=f"http://127.0.0.1:{far.server_port}/v1")
        async with open_connection(settings, {}) as connection:
            telling = ServerInfo(connection, settings.url)
            assert (await telling.get("/v1/models@server") or "").startswith("BaseHTTP/")
            assert await telling.find_provider() is None
            assert await telling.models() == ("m",)
        far.shutdown()


@pytest.mark.asyncio
async def test_fingerprint_depends_on_model_and_version_not_time() -> None:
    entry: dict[str, Any] = {"owned_by": "vllm", "created": 1, "permission": [{"id": "a"}], "max_model_len": 1}
    version = ["0.9"]

    def says(path: str, asked: dict[str, Any]) -> Answer:
        told = json.dumps({"version": version[0]})
        return models("m", **entry) if path == "/v1/models" else Answer(told) if path == "/version" else NOTHING_HERE

    async def fingerprint() -> str:
        async with odd(says) as far:
            settings = HttpConfig(url=f"{far.url}/v1")
            async with open_connection(settings, {}) as connection:
                return await ServerInfo(connection, settings.url).fingerprint(servers.get("vllm"), "m")

    first = await fingerprint()
    entry |= {"created": 2, "permission": [{"id": "b"}]}
    assert await fingerprint() == first
    entry["max_model_len"] = 2
    second = await fingerprint()
    assert second != first
    version[0] = "1.0"
    assert await fingerprint() not in (first, second)


def test_values_at_follows_lists_and_wildcards() -> None:
    value = {"data": [{"id": "a", "n": 1}, {"id": "b", "n": 2}, 3], "x.y": {"z": 4}}
    assert list(values_at(value, ["data", "{model}", "n"], "b")) == [2]
    assert list(values_at(value, ["data", "*", "n"], "")) == [1, 2]
    assert list(values_at(value, ["x.*", "z"], "")) == [4]
    assert list(values_at(value, ["data", "0", "n"], "")) == [1]
    assert list(values_at("text", ["data"], "")) == []


# Formats of leaked calls


def test_leaked_call_is_assigned_to_format_that_parses_it(subtests: pytest.Subtests) -> None:
    def check(name: str) -> None:
        format = formats.get(name)
        text = format.write_calls([ToolCall("call00001", "get_weather", '{"city": "Paris"}')])
        found = find_leaked_call(text, [WEATHER], "some-model")
        assert found is not None
        reader = ReplyReader(formats.get(found.format), [WEATHER], new_id=lambda: "0" * 24)
        events = [*reader.feed(text), *reader.close("stop")]
        assert (
            "".join(event.text for event in events if isinstance(event, ToolCallDelta)).replace(" ", "")
            == '{"city":"Paris"}'
        )

    check_each(subtests, [name for name in formats.names() if name != "auto"], check)


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        (
            '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
            "qwen2.5-coder",
            ("hermes", False, True),
        ),
        ('[get_weather(city="Paris")]', "qwen2.5-coder", ("pythonic", True, False)),
        ("It is sunny in Paris.", "qwen2.5-coder", None),
        ('{"name": "delete_city", "arguments": {}}', "qwen2.5-coder", None),
        ("", "qwen2.5-coder", None),
    ],
)
def test_leaked_call_format_is_detected(text: str, model: str, expected: Any) -> None:
    found = find_leaked_call(text, [WEATHER], model)
    assert found == (expected and DetectedFormat(*expected))


# Error messages

PAGE = Answer("<html><h1>Not Found</h1></html>", 404, "text/html")


def behind(prefix: str) -> Says:
    """A server whose API is below this path."""

    def says(path: str, asked: dict[str, Any]) -> Answer:
        return of(calls)("/v1" + path.removeprefix(prefix), asked) if path.startswith(prefix) else PAGE

    return says


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "prefix", "meant"),
    [
        ("/api", "/api/v1", "/api/v1"),
        ("/v1/chat/completions", "/v1", "/v1"),
        ("/ui", "/v1", "/v1"),
        ("/v1", "/api/v1", "/api/v1"),
    ],
)
async def test_wrong_url_error_names_correct_url(path: str, prefix: str, meant: str) -> None:
    async with odd(behind(prefix)) as far:
        with pytest.raises(ConfigError) as error:
            await probe(HttpConfig(url=far.url + path), {})
    assert str(error.value) == f"no API at {far.url}{path}, but at {far.url}{meant}: dragoman probe {far.url}{meant}"


@pytest.mark.asyncio
async def test_url_without_api_is_reported() -> None:
    async with odd(lambda path, asked: PAGE) as far:
        with pytest.raises(
            ConfigError, match="the server lists no model; load one there, or choose one with --model NAME"
        ):
            await probe(HttpConfig(url=far.url), {})
        with pytest.raises(BackendUnavailableError, match="m does not answer: the server answered 404: Not Found"):
            await probe(HttpConfig(url=far.url), {}, "m")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"wants a key; put it in an environment variable and name that: --api-key-env VAR"),
        ({"api_key_env": "KEY"}, "does not take the key in the variable KEY"),
        ({"api_key_env": "NONE"}, "expected a key in the variable NONE, got none"),
    ],
)
@pytest.mark.parametrize("open_list", [False, True])
async def test_missing_or_wrong_api_key_is_reported(settings: dict[str, Any], words: str, open_list: bool) -> None:
    def says(path: str, asked: dict[str, Any]) -> Answer:
        return models("m") if open_list and path == "/v1/models" else refused("no key", 401)

    async with odd(says) as far:
        with pytest.raises(ConfigError, match=words) as error:
            await probe(HttpConfig(url=far.url, **settings), {"KEY": "secret-words"})
    assert "secret-words" not in str(error.value)


@pytest.mark.asyncio
async def test_unreachable_server_is_reported() -> None:
    async with odd(of(calls)) as far:
        pass
    with pytest.raises(
        BackendUnavailableError, match=r"nothing answers at http://127.0.0.1:\d+: .*is the server running\?"
    ):
        await probe(HttpConfig(url=far.url), {})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("listed", "words"),
    [((), "lists no model; load one there"), (("a", "b"), "lists 2 models; choose one with --model NAME: a, b")],
)
async def test_probe_requires_model_name_unless_server_has_one(listed: tuple[str, ...], words: str) -> None:
    async with odd(lambda path, asked: models(*listed)) as far:
        with pytest.raises(ConfigError, match=words):
            await probe(HttpConfig(url=far.url), {})
        assert {line for line, *_ in far.asked} == {"GET /v1/models HTTP/1.1"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        Answer("", 200),
        Answer("nonsense"),
        Answer("[1, 2]"),
        Answer('{"choices": 7}'),
        Answer("data: {broken\n\n", kind="text/event-stream"),
        Answer('data: {"error": {"message": "out of memory"}}\n\n', kind="text/event-stream"),
        Answer('{"choices": [{"message": {"content": "hi", "tool_calls": "none"}, "finish_reason": "stop"}]}'),
    ],
    ids=range(7),
)
async def test_invalid_response_is_a_finding_not_an_exception(answer: Answer) -> None:
    def model(asked: dict[str, Any]) -> Answer:
        plain = "say hello" in str(asked["messages"]).lower() and len(asked) < 6 and not asked.get("tools")
        return chat({}, "Hello") if plain and not asked.get("stream") else answer

    def says(path: str, asked: dict[str, Any]) -> Answer:
        return of(model)(path, asked) if path in ("/v1/models", CHAT) else answer

    report = await probed(says, *CHECKS)
    assert [finding.what for finding in report.findings] == list(dict.fromkeys((*DECISIVE_CHECKS, *CHECKS)))
    assert report.choice.tool_mode in ("native", "prompt")
    json.dumps(msgspec.to_builtins(report))


@pytest.mark.asyncio
async def test_failing_checks_do_not_stop_probe() -> None:
    def model(asked: dict[str, Any]) -> Answer:
        odd = asked.keys() - {"model", "messages", "temperature", "max_tokens", "stream", "stream_options"}
        return refused("internal error", 500) if odd or "image_url" in str(asked) else chat(asked, "Hello there, you")

    report = await probed(of(model), *CHECKS)
    assert set(report.found("constrained").facts.values()) == {"refused"}
    assert report.found("images").text == "the server answered 500: internal error"
    assert report.choice.tool_mode == "prompt"


@pytest.mark.asyncio
async def test_checks_after_timeout_are_reported_as_not_asked() -> None:
    async with odd(of(calls)) as far:
        report = await probe(HttpConfig(url=far.url), {}, within_s=1e-9)
    assert report.found("answers").verdict == "yes"
    assert report.found("tool calls").text == "not asked: 1e-09 s are over"
    assert [finding.what for finding in report.findings if finding.verdict == "no"] == []
    assert len([line for line, *_ in far.asked if line.startswith("POST")]) == 1


# The command


def command(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = main(["probe", *args])
    return status, *capsys.readouterr()


@pytest.mark.asyncio
async def test_probe_prints_findings_and_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def says(path: str, asked: dict[str, Any]) -> Answer:
        entry = {"owned_by": "vllm", "max_model_len": 4096}
        return (
            models("qwen2.5-7b", **entry)
            if path == "/v1/models"
            else leaks_mistral(asked)
            if path == CHAT
            else NOTHING_HERE
        )

    async with odd(says) as far:
        status, out, err = await asyncio.to_thread(command, capsys, f"{far.url}/v1")
    assert (status, err) == (0, "")
    assert f"{far.url}/v1 is vLLM; asked: qwen2.5-7b, by openai_chat" in out
    assert re.search(r"^context +yes +4096 tokens$", out, re.M)
    assert "https://github.com/vllm-project/vllm/issues/38488" in out
    assert "Best asked in tool mode parse: a call was left in the text, in what the format mistral reads." in out
    assert "context_window" not in out
    file = tmp_path / "config.toml"
    file.write_text(out[out.index("[upstreams.vllm]") :])
    loaded, _ = config.load(file, {}, {})
    server = loaded.upstreams["vllm"]
    assert (server.url, server.provider, server.tool_mode, server.call_format) == (
        f"{far.url}/v1",
        "vllm",
        "parse",
        "mistral",
    )


@pytest.mark.asyncio
async def test_settings_contain_context_window_for_ollama(capsys: pytest.CaptureFixture[str]) -> None:
    def says(path: str, asked: dict[str, Any]) -> Answer:
        loaded = {"models": [{"name": "m", "model": "m", "context_length": 4096}]}
        told = {"/api/version": {"version": "0.32.15"}, "/api/ps": loaded}
        return Answer(json.dumps(told[path])) if path in told else of(calls)(path, asked)

    async with odd(says) as far:
        _, out, _ = await asyncio.to_thread(command, capsys, f"{far.url}/v1")
    assert f"{far.url}/v1 is Ollama 0.32.15" in out
    assert 'provider = "ollama"\ntool_mode = "native"\ncontext_window = 4096\n' in out


@pytest.mark.asyncio
async def test_probe_json_contains_choice_and_all_findings(capsys: pytest.CaptureFixture[str]) -> None:
    async with odd(of(calls)) as far:
        status, out, _ = await asyncio.to_thread(command, capsys, f"{far.url}/v1", "--json", "--timeout", "5")
    told = json.loads(out)
    assert status == 0
    assert told["choice"] == {
        "tool_mode": "native",
        "why": "its own tool calls come, whole and streamed",
        "call_format": "",
        "constrain": [],
    }
    assert [finding["what"] for finding in told["findings"]] == list(CHECKS)


@pytest.mark.asyncio
async def test_exit_status_distinguishes_usage_and_server_errors(capsys: pytest.CaptureFixture[str]) -> None:
    async with odd(lambda path, asked: refused("no key", 401)) as far:
        status, out, err = await asyncio.to_thread(command, capsys, far.url)
    assert (status, out) == (2, "")
    assert err.startswith(f"dragoman probe: error: the server at {far.url} wants a key")
    status, _, err = await asyncio.to_thread(command, capsys, far.url)
    assert (status, "is the server running?" in err) == (1, True)
    status, _, err = await asyncio.to_thread(command, capsys, "127.0.0.1:1234")
    assert (status, "expected a URL like http://127.0.0.1:1234/v1" in err) == (2, True)
    status, _, err = await asyncio.to_thread(command, capsys, far.url, "--provider", "vlm")
    assert (status, "did you mean 'vllm'" in err) == (2, True)


# Without a URL


@pytest.mark.asyncio
async def test_probe_without_url_lists_local_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(path: str, asked: dict[str, Any]) -> Answer:
        return Answer("<html></html>", kind="text/html")

    def vllm(path: str, asked: dict[str, Any]) -> Answer:
        return models("a", "b", owned_by="vllm") if path == "/v1/models" else NOTHING_HERE

    async with odd(of(calls)) as unknown, odd(vllm) as known, odd(other) as page:
        urls = [server.url for server in (unknown, known, page)]
        monkeypatch.setattr(discover, "default_ports", lambda: [int(url.rpartition(":")[2]) for url in urls])
        status, out, _ = await asyncio.to_thread(command, capsys)
        assert status == 0
        assert out == f"{urls[0]}/v1  an unknown provider  m\n{urls[1]}/v1  vLLM  a, b\n"
        status, out, _ = await asyncio.to_thread(command, capsys, "--json")
        assert [near["provider"] for near in json.loads(out)] == ["", "vllm"]
    status, out, err = await asyncio.to_thread(command, capsys)
    assert (status, out) == (1, "")
    assert "dragoman probe URL" in err
