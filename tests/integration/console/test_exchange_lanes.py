"""The four lanes of real captures, of all modes and APIs: nothing is lost, and counterparts are linked.

client ─HTTP→ gateway, which captures ─HTTP→ a server scripted by the test; then lanes from the files of the capture
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import CaptureConfig
from dragoman.console.exchange.lanes.build_lanes import ExchangeLanes, build_lanes
from dragoman.console.exchange.lanes.model_lane import RAW
from dragoman.console.exchange.views import LaneBlock, Segment
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.server.capture.load import LoadedCapture, load
from dragoman.tool_executors.local_index import LocalSearch
from support.capturing import TOOLS, folders, keeping, kept, says
from support.claude_gateway import Says, Turns, behind_claude
from support.completions_upstream import completes
from support.fake_upstream import RESPONSES, Play, Server, ask, dies, falls_silent, server, whole
from support.gateway import CHAT, MESSAGES, MODEL, running, until
from support.http_client import http_client
from support.paths import DATA
from support.scripted_backend import Scripted, plain, serving

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TEXT = f"Let me see… <b>\n{CALL}\n"
PATHS = [CHAT, MESSAGES, RESPONSES]


def tools_of(path: str) -> list[dict[str, Any]]:
    if path == CHAT:
        return TOOLS
    if path == MESSAGES:
        return [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    return [{"type": "function", **tool["function"]} for tool in TOOLS]


async def lanes_of(folder: Path) -> tuple[LoadedCapture, ExchangeLanes]:
    capture = LoadedCapture(*load(folder))
    view = await asyncio.to_thread(build_lanes, capture)
    check(capture, view)
    return capture, view


def check(capture: LoadedCapture, view: ExchangeLanes) -> None:
    """What holds for all lanes."""
    texts = [
        capture.files[name].decode()
        for n in range(1, capture.backend_call_count + 1)
        for c in range(1, capture.output_count(n) + 1)
        if (name := f"{n}/text-{c}.txt") in capture.files
    ]
    written = [s.text for b in blocks(view, "model") if b.title.startswith("text") for s in b.segments]
    assert "".join(written) == "".join(texts)
    sent = "".join(s.text for s in all_segments(view, "client"))
    body = capture.files.get("body", b"{}")
    for leaf in leaves(json.loads(body)):
        assert leaf in sent or json.dumps(leaf, ensure_ascii=False)[1:-1] in sent, leaf
    reply = "".join(s.text for s in all_segments(view, "reply"))
    for event in capture.lines("events.jsonl"):
        if event["event"] == "ToolCallStart":
            assert event["name"] in reply


def leaves(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, each in value.items():
                if name not in ("type", "role"):  # titles and kinds of segments have these
                    yield from leaves(each)
        case list():
            for each in value:
                yield from leaves(each)
        case _:
            pass


def blocks(view: ExchangeLanes, name: str) -> list[LaneBlock]:
    [lane] = [lane for lane in view.lanes if lane.name == name]
    return [block for block in lane.blocks if not block.link.startswith(RAW)]


def all_segments(view: ExchangeLanes, name: str) -> list[Segment]:
    return [segment for block in blocks(view, name) for segment in block.segments]


def kinds(view: ExchangeLanes, link: str, lane: str = "model") -> dict[str, str]:
    """Returns the joined text by kind of the segments with this link."""
    out: dict[str, str] = {}
    for segment in all_segments(view, lane):
        if segment.link == link:
            out[segment.kind] = out.get(segment.kind, "") + segment.text
    return out


def codes(view: ExchangeLanes, lane: str) -> set[str]:
    return {note.code for segment in all_segments(view, lane) for note in segment.notes}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", ["native", "parse", "prompt"])
@pytest.mark.parametrize("stream", [True, False])
async def test_call_is_linked_through_model_and_reply(mode: str, path: str, stream: bool, tmp_path: Path) -> None:
    async with keeping(tmp_path, says(*re.findall(r"(?s).{1,5}", TEXT)), tool_mode=mode, call_format="hermes") as url:
        assert (await ask(url, path, stream, tools=tools_of(path))).status_code == 200
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    call = kinds(view, "call:0")
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Paris"}')
    assert "".join(call["markup"].split()) == '<tool_call>{"name":"","arguments":}</tool_call>'
    assert kinds(view, "text:0")["text"] == "Let me see… <b>"
    got = kinds(view, "call:0", "reply")
    assert (got["name"], json.loads(got["arguments"])) == ("get_weather", {"city": "Paris"})
    assert kinds(view, "text:0", "reply")["text"].strip() == "Let me see… <b>"
    assert kinds(view, "tool:get_weather", "client")
    assert kinds(view, "message:0", "client") == {"text": "hi"}
    assert "hi" in "".join(kinds(view, "message:0", "sent").values())
    assert kinds(view, "tool:get_weather", "sent")
    [sent] = view.sent_calls
    assert (sent.backend, sent.mode, sent.why, sent.error) == ("far", mode, "first", "")
    recovered = [n for s in all_segments(view, "model") for n in s.notes if n.code == "leaked_call_recovered"]
    assert len(recovered) == (mode == "native")
    for note in recovered:
        assert note.rule
        assert note.meaning
        assert "parse" in note.remedy
        assert note.settings == ("upstreams.NAME.tool_mode",)


BARE = {
    "an object": '{"name": "get_weather", "parameters": {"city": "Paris"}}',
    "a list": '[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    "a fence": '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
    "a python tag": '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
    "harmony": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
}


@pytest.mark.parametrize("text", BARE.values(), ids=BARE)
async def test_leaked_call_shows_where_it_was_recovered(text: str, tmp_path: Path) -> None:
    async with keeping(tmp_path, says(*re.findall(r"(?s).{1,5}", text)), tool_mode="native") as url:
        assert "get_weather" in (await ask(url, CHAT, True, tools=TOOLS)).text
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    call = kinds(view, "call:0")
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Paris"}')
    assert "leaked_call_recovered" in codes(view, "model")


async def test_call_of_server_is_shown_with_its_arguments(tmp_path: Path) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    message = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": "Sure.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    body = json.dumps({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    async with keeping(tmp_path, whole(200, body), tool_mode="native") as url:
        await ask(url, MESSAGES, False, tools=tools_of(MESSAGES))
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert kinds(view, "call:0") == {"name": "get_weather", "plain": " ", "arguments": '{"city": "Paris"}'}
    assert kinds(view, "reasoning:0") == {"reasoning": "Hm."} == kinds(view, "reasoning:0", "reply")
    assert kinds(view, "text:0")["text"] == "Sure."
    assert "valid" in codes(view, "model") & codes(view, "reply")


async def test_repairs_of_json_and_schema_are_marked(tmp_path: Path) -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {\'city\': ["Paris"]}}\n</tool_call>'
    async with keeping(tmp_path, says(text), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert kinds(view, "call:0")["repair"] == "''"
    notes = [note for s in all_segments(view, "model") for note in s.notes]
    assert any(note.rule == "repair unwrap" for note in notes)
    assert any("read as '\"'" in note.message for note in notes)
    assert json.loads(kinds(view, "call:0", "reply")["arguments"]) == {"city": "Paris"}


async def test_passthrough_response_has_all_lanes(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("Hel", "lo"), passthrough=True) as url:
        await ask(url, CHAT, True)
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert kinds(view, "text:0") == {"text": "Hello"} == kinds(view, "text:0", "reply")
    assert view.sent_calls[0].mode == "passthrough"


async def test_prompt_of_completions_is_linked_to_messages(tmp_path: Path) -> None:
    play = completes(f"A tool helps.\n{CALL}")
    async with keeping(tmp_path, play, tool_mode="prompt", endpoint="completions", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path)
    capture, view = await lanes_of(folder)
    prompt = "".join(s.text for b in blocks(view, "sent") if b.title == "prompt" for s in b.segments)
    assert prompt == capture.files["1/prompt-1.txt"].decode()
    assert kinds(view, "message:0", "sent") == {"text": "hi"}
    assert kinds(view, "tool:get_weather", "sent") == {"name": "get_weather"}


async def test_re_ask_shows_the_rejected_call_and_the_one_that_replaced_it(tmp_path: Path) -> None:
    async def play(far: Server, writer: Any) -> None:
        arguments = '{"city": "Paris"}' if len(far.asked) > 1 else "{}"
        await says(CALL.replace('{"city": "Paris"}', arguments))(far, writer)

    async with keeping(tmp_path, play, tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert [call.why for call in view.sent_calls] == ["first", "reask"]
    assert kinds(view, "call:0")["arguments"] == '{}{"city": "Paris"}'
    assert "reasked" in {note.code for note in view.notes}
    assert "reasked" in codes(view, "reply")


async def test_failover_and_retry_have_reasons(tmp_path: Path) -> None:
    async with server(whole(503, "busy")) as one, server(says(CALL)) as other:
        far = {"models": ("m",), "max_retries": 1, "auto_probe": False, "tool_mode": "parse", "call_format": "hermes"}
        backends = [
            HttpBackend(n, HttpConfig(url=f"{b.url}/v1", **far), {})
            for n, b in (("one", one), ("other", other))  # type: ignore[arg-type]
        ]
        async with serving(Gateway(backends), capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
            await ask(url, CHAT, True, tools=TOOLS)
            [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert [(call.backend, call.why, bool(call.error)) for call in view.sent_calls] == [
        ("one", "first", True),
        ("other", "failover", False),
    ]
    assert "failed_over" in {note.code for note in view.notes}
    assert kinds(view, "call:0")["name"] == "get_weather"


@pytest.mark.parametrize("play", [dies, whole(400, '{"error": {"message": "no"}}'), whole(503, "busy")])
@pytest.mark.parametrize("trusted", [False, True])
async def test_failures_are_in_all_lanes(play: Play, trusted: bool, tmp_path: Path) -> None:
    async with keeping(tmp_path, play, passthrough=trusted) as url:
        answer = await ask(url, CHAT, True)
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert "error" in codes(view, "model")
    assert f"HTTP {answer.status_code}" in "".join(s.text for s in all_segments(view, "reply"))
    assert "error" in {note.code for note in view.notes}


async def test_invalid_request_is_shown(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("hi")) as url:
        await ask(url, CHAT, True, temperature="warm")
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert "$.temperature" in "".join(s.text for s in all_segments(view, "reply"))
    assert view.sent_calls == ()


async def test_body_that_is_no_json_is_shown(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("hi")) as url, http_client(url) as client:
        await client.post(CHAT, content=b"{not json")
        [folder] = await kept(tmp_path)
    view = await asyncio.to_thread(build_lanes, LoadedCapture(*load(folder)))
    assert "{not json" in "".join(s.text for s in all_segments(view, "client"))


@pytest.mark.parametrize("mode", ["native", pytest.param("text", marks=pytest.mark.every)])
async def test_claude_cli_exchange_has_all_lanes(mode: str, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    script = Turns([Says("Let me look.", [("get_weather", {"city": "Paris"})])])
    async with behind_claude(script, tmp_path, mode, capture=str(place)) as chain:
        await ask(chain.url, CHAT, True, tools=TOOLS)
        [folder] = await kept(place)
    _, view = await lanes_of(folder)
    assert kinds(view, "call:0")["name"].endswith("get_weather")
    assert "Let me look." in kinds(view, "text:0")["text"]
    assert "hi" in "".join(kinds(view, "message:0", "sent").values())


async def test_backend_of_which_only_events_are_known_has_all_lanes(tmp_path: Path) -> None:
    async with serving(Gateway([Scripted(plain)]), capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
        await ask(url, MESSAGES, True)
        [folder] = await kept(tmp_path)
    view = await asyncio.to_thread(build_lanes, LoadedCapture(*load(folder)))
    assert kinds(view, "text:0")["text"]
    assert kinds(view, "text:0")["text"] == kinds(view, "text:0", "reply")["text"]


async def test_tool_that_the_gateway_runs_has_a_second_request(tmp_path: Path) -> None:
    search = '<tool_call>\n{"name": "web_search", "arguments": {"query": "zebras"}}\n</tool_call>'

    async def play(far: Server, writer: Any) -> None:
        await says("Found." if b"Mallorca" in far.asked[-1][2] else search)(far, writer)

    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "zebra.txt").write_text("Zebras of Mallorca\n")
    async with server(play) as far:
        config = HttpConfig(f"{far.url}/v1", models=("m",), tool_mode="prompt", call_format="hermes", auto_probe=False)
        runner = VendorToolRunner({"web_search": LocalSearch(tmp_path / "pages", "", 5)})
        gateway = Gateway([HttpBackend("far", config, {})], vendor_tools=runner)
        capture = CaptureConfig(dir=str(tmp_path / "kept"))
        async with serving(gateway, capture=capture) as (_, url), http_client(url) as client:
            tools = [{"type": "web_search_20250305", "name": "web_search"}]
            messages = [{"role": "user", "content": "Are there zebras?"}]
            await client.post(MESSAGES, json={"model": "m", "max_tokens": 99, "tools": tools, "messages": messages})
        [folder] = await kept(tmp_path / "kept")
    _, view = await lanes_of(folder)
    assert [call.why for call in view.sent_calls] == ["first", "tools"]
    assert kinds(view, "call:1.0")["name"] == "web_search"
    assert kinds(view, "text:0") == {"text": "Found."} == kinds(view, "text:0", "reply")
    assert "zebra.txt" in "".join(s.text for s in all_segments(view, "reply"))


async def test_exchange_of_disconnected_client_is_shown(tmp_path: Path) -> None:
    async with keeping(tmp_path, falls_silent) as url:
        async with http_client(url) as client:
            asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            async with client.stream("POST", CHAT, json=asked) as answer:
                stream = answer.aiter_raw()
                while b"It is" not in await anext(stream):
                    pass
        [folder] = await kept(tmp_path)
    _, view = await lanes_of(folder)
    assert kinds(view, "text:0") == {"text": "It is"} == kinds(view, "text:0", "reply")
    assert "abandoned" in codes(view, "model")


@pytest.mark.model
def test_exchange_of_embedded_model_has_all_lanes(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    with running(tmp_path, "--capture", str(place)) as own:
        messages = [{"role": "user", "content": "What is the weather in Paris?"}]
        asked = {"model": MODEL, "messages": messages, "tools": TOOLS, "tool_choice": "required", "max_tokens": 60}
        answer = own.post(CHAT, asked).json()["choices"][0]["message"]
        until(lambda: place.is_dir() and folders(place), "a capture")
    capture = LoadedCapture(*load(place))
    view = build_lanes(capture)
    check(capture, view)
    prompt = "".join(s.text for b in blocks(view, "sent") if b.title == "prompt" for s in b.segments)
    assert prompt == capture.files["1/prompt-1.txt"].decode()
    assert kinds(view, "message:0", "sent")["text"] == "What is the weather in Paris?"
    assert kinds(view, "tool:get_weather", "sent")["name"] == "get_weather"
    assert (view.sent_calls[0].backend, view.sent_calls[0].mode) == ("embedded", "prompt")
    if answer.get("tool_calls"):
        assert kinds(view, "call:0")["name"] == "get_weather"
        assert kinds(view, "call:0", "reply")["name"] == "get_weather"


async def test_captured_example_explains_the_broken_call() -> None:
    _, view = await lanes_of(DATA / "captures")
    broken = [s for s in all_segments(view, "model") if s.link == "text:0"]
    assert {"name", "arguments", "broken"} <= {s.kind for s in broken}
    assert "malformed_arguments" in codes(view, "model")
