"""`dragoman replay` and `bundle`: captured exchanges are reproduced, explained, rechunked, compared, anonymized.

client ─HTTP→ gateway, which captures the exchange ─HTTP→ a server scripted by the test;
then `dragoman replay`, without the client, the gateway and the server
"""

import asyncio
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import cli
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import CaptureConfig
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import ContextOverflowError, UnknownModelError, UpstreamError
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start, ToolCallEnd, UsageUpdate
from dragoman.core.messages import Request, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.redaction.anonymize import Anonymizer, KeepRules, map_strings
from dragoman.redaction.redact import Redactor
from dragoman.server.capture.diff import difference
from dragoman.server.capture.files import chunk_from_json, chunk_to_json, error_json, event_json, jsonl
from dragoman.server.capture.load import error_from_json, event_from_json
from dragoman.server.capture.replay_backend import ChunkMode, Rechunker
from dragoman.tool_executors.local_index import LocalSearch
from support import doc_examples
from support.capturing import TOOLS, folders, keeping, kept, lines, says
from support.claude_gateway import Says, Turns, behind_claude
from support.completions_upstream import CHATML, PROPS, completes
from support.fake_upstream import RESPONSES, Play, Server, ask, dies, falls_silent, server, whole
from support.gateway import CHAT, MESSAGES, MODEL, running, until
from support.http_client import http_client
from support.paths import DATA
from support.scripted_backend import Scripted, plain, serving

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CUTS = ("recorded", "whole", "chars", "random")

FAILING_TEXTS = {
    "an unclosed brace": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"\n</tool_call>',
        "get_weather",
    ),
    "a member that is missing": ('<tool_call>\n{"name": "get_weather", "arguments": {"city":\n</tool_call>', "a value"),
    "a tool that is not offered": (CALL.replace("get_weather", "get_whether_report"), "unknown_tool"),
    "arguments that are none": (CALL.replace('{"city": "Paris"}', "Paris"), "expected"),
    "no name": (CALL.replace('"name"', '"nome"'), "name"),
    "a closer of another format": (CALL.replace("</tool_call>", "</function>"), "get_weather"),
    "a call in the middle of a word": (f"the tag{CALL[:11]} opens a call", "expected"),
}
"""By what is wrong: the model's text, and a text that the explanation must contain."""


async def run_replay(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str]:
    """Runs `dragoman replay`; returns the exit status and the output."""
    capsys.readouterr()
    status = await asyncio.to_thread(cli.main, ["replay", *map(str, args)])
    return status, capsys.readouterr().out


def stages(said: str) -> dict[str, str]:
    """Returns `same` or `differs` for each stage."""
    return dict(re.findall(r"^  (\w+(?: \d)?(?:, \d)?) +(same|differs)$", said, re.M))


@pytest.mark.parametrize("broken", FAILING_TEXTS.values(), ids=FAILING_TEXTS)
@pytest.mark.parametrize("mode", ["parse", "prompt", "native"])
async def test_failed_parse_is_reproduced_and_explained(
    broken: tuple[str, str], mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, why = broken
    # avoids a re-ask by the guard, which has its own tests
    policy = {"tool_choice": "auto"}
    async with keeping(tmp_path, says(*re.findall(r"(?s).{1,7}", text)), tool_mode=mode, call_format="hermes") as url:
        answer = await ask(url, MESSAGES, True, tools=anthropic_tools(TOOLS), **({} if mode else policy))
        await kept(tmp_path)
    assert ('"tool_use"' in answer.text) is (why == "get_weather")
    status, said = await run_replay(capsys, tmp_path, "--explain")
    assert status == 0, said
    assert set(stages(said).values()) == {"same"}
    assert why in said.partition("\ntext 1")[2]
    assert "no_call" in said or "! " in said or mode == "native" or "whole call" in said


def anthropic_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in tools]


def asked(path: str) -> dict[str, Any]:
    if path == CHAT:
        return {"tools": TOOLS}
    if path == MESSAGES:
        return {"tools": anthropic_tools(TOOLS)}
    return {"tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("mode", ["native", "parse", "prompt"])
async def test_replay_is_same_for_every_mode_api_and_chunking(
    mode: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"Let me see… <b>{CALL}\n"
    async with keeping(tmp_path, says(*re.findall(r"(?s).{1,5}", text)), tool_mode=mode, call_format="hermes") as url:
        assert (await ask(url, path, True, **asked(path))).status_code == 200
        await kept(tmp_path)
    for cut, seed in [*((cut, 0) for cut in CUTS), ("random", 1), ("random", 2)]:
        status, said = await run_replay(capsys, tmp_path, "--chunking", cut, "--seed", str(seed))
        assert status == 0, said


async def test_passthrough_response_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says("Hel", "lo"), passthrough=True) as url:
        await ask(url, CHAT, True)
        await kept(tmp_path)
    for cut in CUTS:
        status, said = await run_replay(capsys, tmp_path, "--chunking", cut)
        assert (status, list(stages(said))) == (0, ["values", "request 1", "sent 1", "events 1", "reply"]), said


async def test_completions_prompt_is_replayed_without_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chat template came from the server, and is in the capture."""
    thinking = CHATML.replace("assistant\n", "assistant\n<think>\n")
    props = PROPS.replace(json.dumps(CHATML), json.dumps(thinking))
    play = completes(f"A tool helps.</think>\n\n{CALL}", props)
    async with keeping(tmp_path, play, tool_mode="prompt", endpoint="completions", call_format="hermes") as url:
        answer = await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path)
    assert "get_weather" in answer.text
    assert (folder / "1/prompt-1.txt").read_text().endswith("<think>\n")
    for cut in CUTS:
        status, said = await run_replay(capsys, folder, "--chunking", cut, "--explain")
        assert status == 0, said
        assert "after '<think>\\n' of the prompt" in said
        assert re.search(r"reasoning +A tool helps", said)


async def test_re_ask_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says("It is ", "sunny.")) as url:
        await ask(url, CHAT, True, tools=TOOLS, tool_choice="required")
        await kept(tmp_path)
    status, said = await run_replay(capsys, tmp_path, "--chunking", "random")
    assert status == 0, said
    assert "events 2" in stages(said)


async def test_replay_uses_the_mode_captured_for_each_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mode `auto` goes from native to parse when a call leaks, so the re-ask in the same exchange is made in parse."""
    async with keeping(tmp_path, says(CALL.replace('"city": "Paris"', ""))) as url:
        await ask(url, CHAT, True, tools=TOOLS)
        (capture,) = await kept(tmp_path)
    modes = [json.loads((capture / f"{n}/backend.json").read_text())["model_mode"]["tool_mode"] for n in (1, 2)]
    assert modes == ["native", "parse"]
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said
    assert set(stages(said).values()) == {"same"}


@pytest.mark.parametrize("play", [dies, whole(400, '{"error": {"message": "no"}}'), whole(503, "busy")])
@pytest.mark.parametrize("trusted", [False, True])
async def test_upstream_failure_is_replayed(
    play: Play, trusted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with keeping(tmp_path, play, passthrough=trusted) as url:
        await ask(url, CHAT, True)
        await kept(tmp_path)
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said


async def test_invalid_request_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says("hi")) as url:
        assert (await ask(url, CHAT, True, temperature="warm")).status_code == 400
        await kept(tmp_path)
    status, said = await run_replay(capsys, tmp_path)
    assert (status, stages(said)) == (0, {"values": "same", "reply": "same"}), said


async def test_exchange_of_disconnected_client_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, falls_silent) as url:
        async with http_client(url) as client:
            asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            async with client.stream("POST", CHAT, json=asked) as answer:
                stream = answer.aiter_raw()
                while b"It is" not in await anext(stream):
                    pass
        await kept(tmp_path)
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said


async def test_unknown_backend_kind_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Added(Scripted):
        """A backend that reports its model's output, but does not describe itself."""

        async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
            async for batch in context.wrap_model_output("pipe", b"what is sent", super().generate(request, context)):
                yield batch

    async with serving(Gateway([Added(plain)]), capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
        await ask(url, MESSAGES, True)
        await kept(tmp_path)
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said
    assert stages(said)["events 1"] == "same"


async def test_failover_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with server(whole(503, "busy")) as one, server(says(CALL)) as other:
        far = {"models": ("m",), "max_retries": 0, "auto_probe": False, "tool_mode": "parse", "call_format": "hermes"}
        backends = [
            HttpBackend(n, HttpConfig(url=f"{b.url}/v1", **far), {}) for n, b in (("one", one), ("other", other))
        ]
        async with serving(Gateway(backends), capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
            assert "get_weather" in (await ask(url, CHAT, True, tools=TOOLS)).text
            await kept(tmp_path)
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said
    assert "by one parse hermes, other parse hermes: tool_calls" in said


@pytest.mark.parametrize("kind", ["llama_cpp", "vllm", "lm_studio"])
async def test_constrained_request_is_replayed(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says(CALL), tool_mode="prompt", call_format="hermes", provider=kind) as url:
        await ask(url, CHAT, True, tools=TOOLS, tool_choice="required")
        [folder] = await kept(tmp_path)
    assert re.search("grammar|structur|json_schema", (folder / "1/sent-1.json").read_text())
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said


async def test_rejected_parameter_retry_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.dumps({"error": {"message": "Unsupported parameter: 'top_k'"}})

    async def play(server: Server, writer: Any) -> None:
        is_rejected = b'"top_k"' in server.asked[-1][2]
        await (whole(400, told) if is_rejected else says("hi"))(server, writer)

    async with keeping(tmp_path, play) as url:
        assert (await ask(url, MESSAGES, True, top_k=3)).status_code == 200
        [folder] = await kept(tmp_path)
    assert "top_k" in (folder / "1/sent-1.json").read_text()
    assert "top_k" not in (folder / "1/sent-2.json").read_text()
    status, said = await run_replay(capsys, tmp_path)
    assert status == 0, said
    assert stages(said)["sent 1, 2"] == "same"


@pytest.mark.parametrize("mode", ["native", "text"])
async def test_claude_cli_exchange_is_replayed_without_claude(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "kept"
    script = Turns([Says("Let me look.", [("get_weather", {"city": "Paris"})])])
    async with behind_claude(script, tmp_path, mode, capture=str(place)) as chain:
        answer = await ask(chain.url, CHAT, True, tools=TOOLS)
        [folder] = await kept(place)
    assert "get_weather" in answer.text
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).decode()
    assert [secret for secret in chain.host if secret in everything] == []
    for cut in CUTS:
        status, said = await run_replay(capsys, place, "--chunking", cut)
        assert status == 0, said
    assert "the problem is still in it" in await run_bundle(capsys, place, "-o", tmp_path / "bug.zip")
    status, said = await run_replay(capsys, tmp_path / "bug.zip")
    assert status == 0, said


@pytest.mark.model
def test_truncated_call_of_embedded_model_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "kept"
    with running(tmp_path, "--capture", str(place)) as own:
        messages = [{"role": "user", "content": "What is the weather in Paris?"}]
        asked = {"model": MODEL, "messages": messages, "tools": TOOLS, "tool_choice": "required", "max_tokens": 14}
        answer = own.post(CHAT, asked)
        assert answer.json()["choices"][0]["finish_reason"] == "length"
        until(lambda: place.is_dir() and folders(place), "a capture")
    assert (folders(place)[0] / "1/prompt-1.txt").read_text().endswith("<|im_start|>assistant\n")
    for cut in CUTS:
        status = cli.main(["replay", str(place), "--chunking", cut, "--explain"])
        said = capsys.readouterr().out
        assert status == 0, said
        assert re.search(r"no whole call|1 broken", said)
    assert cli.main(["bundle", str(place), "-o", str(tmp_path / "bug.zip")]) == 0
    assert "the problem is still in it" in capsys.readouterr().out
    assert "What is the weather" not in "".join(unpacked(tmp_path / "bug.zip").values())
    assert cli.main(["replay", str(tmp_path / "bug.zip")]) == 0
    # As long as the engine reads the prompt, the console replays an exchange without output.
    output = folders(place)[0] / "1/model-output-1.jsonl"
    output.write_bytes(output.read_bytes().splitlines(keepends=True)[0])
    cli.main(["replay", str(place)])
    assert "bug while answering" not in caplog.text


async def test_results_of_tools_that_gateway_ran_are_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the search: the replay uses what it returned then. In a bundle its content is replaced."""
    search = '<tool_call>\n{"name": "web_search", "arguments": {"query": "zebras"}}\n</tool_call>'

    async def play(server: Server, writer: Any) -> None:
        await says("Found." if b"Mallorca" in server.asked[-1][2] else search)(server, writer)

    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "zebra.txt").write_text("Zebras of Mallorca\n")
    async with server(play) as far:
        config = HttpConfig(f"{far.url}/v1", models=("m",), tool_mode="prompt", call_format="hermes", auto_probe=False)
        runner = VendorToolRunner({"web_search": LocalSearch(folder, "", 5)})
        gateway = Gateway([HttpBackend("far", config, {})], vendor_tools=runner)
        capture = CaptureConfig(dir=str(tmp_path / "kept"))
        async with serving(gateway, capture=capture) as (_, url), http_client(url) as client:
            tools = [{"type": "web_search_20250305", "name": "web_search"}]
            body = {"model": "m", "max_tokens": 99, "stream": True, "tools": tools}
            asking = [{"role": "user", "content": "Are there zebras?"}]
            assert "web_search_tool_result" in (await client.post(MESSAGES, json={**body, "messages": asking})).text
        (kept_folder,) = await kept(tmp_path / "kept")
    shutil.rmtree(folder)
    (run,) = lines(kept_folder / "tool-runs.jsonl")
    assert (run["kind"], json.loads(run["arguments"])) == ("web_search", {"query": "zebras"})
    status, said = await run_replay(capsys, kept_folder)
    assert (status, set(stages(said).values())) == (0, {"same"})
    bundle = tmp_path / "bug.zip"
    assert await asyncio.to_thread(cli.main, ["bundle", str(kept_folder), "-o", str(bundle)]) == 0
    capsys.readouterr()
    assert "Mallorca" not in "".join(unpacked(bundle).values())
    status, said = await run_replay(capsys, bundle)
    assert (status, set(stages(said).values())) == (0, {"same"})


async def test_previous_response_id_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stored response no longer exists during the replay."""
    async with keeping(tmp_path / "kept", says(CALL), tool_mode="prompt", call_format="hermes") as url:
        one = await ask(url, RESPONSES, False, **asked(RESPONSES), instructions="Mallorca")
        (call,) = (each for each in one.json()["output"] if each["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "It is sunny."}
        body = {"model": "m", "input": [result], "previous_response_id": one.json()["id"], "stream": True}
        async with http_client(url) as client:
            assert (await client.post(RESPONSES, json=body | asked(RESPONSES))).status_code == 200
        _, folder = await kept(tmp_path / "kept", 2)
    assert "PreviousResponseRef" in (folder / "values.json").read_text()
    assert "get_weather" in (folder / "1/values.json").read_text().partition('"tools"')[0]
    status, said = await run_replay(capsys, folder)
    assert status == 0, said
    assert "the problem is still in it" in await run_bundle(capsys, folder, "-o", tmp_path / "bug.zip")
    status, said = await run_replay(capsys, tmp_path / "bug.zip")
    assert status == 0, said


async def test_verbatim_history_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gateway stores this text; clients never send it back verbatim."""
    bare = '```json\n{"name": "get_weather",\n "arguments": {"city":   "Mallorca"}}\n```'
    async with keeping(tmp_path / "kept", says(bare), tool_mode="prompt", call_format="hermes") as url:
        one = await ask(url, CHAT, False, tools=TOOLS)
        (call,) = one.json()["choices"][0]["message"]["tool_calls"]
        call["function"]["arguments"] = '{"city":"Mallorca"}'
        told = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        told += [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
        turns = [{"role": "user", "content": "Weather in Mallorca?"}, *told]
        async with http_client(url) as client:
            answer = await client.post(CHAT, json={"model": "m", "messages": turns, "tools": TOOLS})
            assert answer.status_code == 200
        _, folder = await kept(tmp_path / "kept", 2)
    sent = (folder / "1/sent-1.json").read_text()
    assert "```json" in sent
    assert 'city\\":   \\"Mallorca' in sent
    status, said = await run_replay(capsys, folder)
    assert status == 0, said
    await run_bundle(capsys, folder, "-o", tmp_path / "bug.zip")
    with zipfile.ZipFile(tmp_path / "bug.zip") as bundle:
        assert not [name for name in bundle.namelist() if b"Mallorca" in bundle.read(name)]
    status, said = await run_replay(capsys, tmp_path / "bug.zip")
    assert status == 0, said


async def test_replay_does_not_re_ask_claude(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "kept"
    script = Turns([Says("It is sunny."), Says("", [("get_weather", {"city": "Paris"})])])
    async with behind_claude(script, tmp_path, "native", capture=str(place)) as chain:
        answer = await ask(chain.url, CHAT, False, tools=TOOLS, tool_choice="required")
        [folder] = await kept(place)
    assert answer.json()["choices"][0]["message"]["tool_calls"]
    assert (folder / "1/model-output-2.jsonl").exists()
    status, said = await run_replay(capsys, place)
    assert status == 0, said


async def test_claude_cli_cost_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "kept"
    async with behind_claude(Turns([Says("Hello there.")]), tmp_path, "native", capture=str(place)) as chain:
        answer = await ask(chain.url, CHAT, False)
        assert float(answer.headers["x-dragoman-cost-usd"]) > 0
        await kept(place)
    status, said = await run_replay(capsys, place)
    assert status == 0, said


# Differences


async def test_difference_is_shown_as_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says(CALL), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path)
    events = folder / "1/events.jsonl"
    events.write_text(events.read_text().replace("ToolCallEnd", "ToolCallIncomplete"))
    sent = folder / "1/sent-1.json"
    sent.write_text(sent.read_text().replace('"m"', '"another"'))
    status, said = await run_replay(capsys, folder)
    assert status == 1
    differs = [stage for stage, how in stages(said).items() if how == "differs"]
    assert differs == ["sent 1", "events 1"]
    assert '    -{"event": "ToolCallIncomplete", "index": 0}' in said
    assert '    - "model": "another",' in said
    assert '    + "model": "m",' in said


async def test_json_has_all_lines_of_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says(CALL), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path)
    sent = folder / "1/sent-1.json"
    sent.write_text(json.dumps({"stop": list(map(str, range(38)))} | json.loads(sent.read_text())))
    status, said = await run_replay(capsys, folder)
    assert status == 1
    shown = re.findall(r"^    ([-+…].*)$", said, re.M)
    assert len(shown) == 13
    assert shown[-1] == "… 28 more lines; --json prints all"
    status, said = await run_replay(capsys, folder, "--json")
    assert status == 1
    [difference] = [stage["difference"] for stage in json.loads(said)["stages"] if not stage["same"]]
    assert difference == ['- "stop": [', *(f'-  "{n}",' for n in range(37)), '-  "37"', "- ],"]


def test_difference_has_lines_that_begin_with_signs_of_a_diff() -> None:
    assert difference(["- one", "same", "@@ x"], ["same", "++ two"]) == ("-- one", "-@@ x", "+++ two")


async def test_request_missing_in_capture_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path, says("hi"), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True)
        [folder] = await kept(tmp_path)
    (folder / "1/model-output-1.jsonl").unlink()
    status, said = await run_replay(capsys, folder)
    assert status == 1
    assert "the replay sends more requests than were captured" in said


async def test_replay_can_send_to_a_live_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with keeping(tmp_path / "one", says("It is sunny."), tool_mode="native") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        await kept(tmp_path / "one")
    settings = tmp_path / "config.toml"
    async with server(says(CALL)) as behind:
        settings.write_text(
            f'[upstreams.real]\nurl = "{behind.url}/v1"\nmodels = ["x"]\ntool_mode = "parse"\nauto_probe = false\n'
        )
        args = ["--model", "x", "--config", settings, "--output", tmp_path / "two"]
        status, said = await run_replay(capsys, tmp_path / "one", *args)
        assert status == 1
        assert json.loads(behind.asked[-1][2])["model"] == "x"
        assert (await run_replay(capsys, tmp_path / "one", "--upstream", f"{behind.url}/v1"))[0] == 1
    assert '+{"event": "ToolCallStart"' in said.replace(' "index": 0,', "")
    assert (await run_replay(capsys, tmp_path / "two"))[0] == 0


@pytest.mark.parametrize("is_listed_in_settings", [True, False])
async def test_replay_prefers_server_of_settings_to_embedded_model(
    is_listed_in_settings: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "smollm2"  # also an alias of an embedded model
    listed = json.dumps({"data": [{"id": model}]})
    async with keeping(tmp_path / "one", says("It is sunny."), tool_mode="native") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        await kept(tmp_path / "one")

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        is_list = far.asked[-1][0].startswith("GET ")
        await (whole(200, listed) if is_list else says(CALL))(far, writer)

    settings = tmp_path / "config.toml"
    async with server(play) as far:
        names = f'models = ["{model}"]\n' if is_listed_in_settings else ""
        settings.write_text(f'[upstreams.real]\nurl = "{far.url}/v1"\nauto_probe = false\n{names}')
        await run_replay(capsys, tmp_path / "one", "--model", model, "--config", settings)
        assert json.loads(far.asked[-1][2])["model"] == model


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nowhere"], "cannot read nowhere"),
        (["."], "there is no summary.json in it"),
        (["config.toml"], "expected its folder, or a bundle"),
    ],
)
def test_path_that_is_not_a_capture_is_rejected(
    args: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text("")
    assert cli.main(["replay", *args]) == 2
    assert told in capsys.readouterr().err


def test_events_and_errors_round_trip_through_json() -> None:
    events: list[AnyEvent] = [
        Start("1", "m", 7, 3),
        ToolCallEnd(0, ("numbers",), True),
        Notice("content_dropped", "words", "raw"),
        UsageUpdate(Usage(1, 2, cost_usd=0.5)),
        Finish("stop"),
    ]
    for event in events:
        assert event_from_json(json.loads(json.dumps(event_json(event)))) == event
    for error in (ContextOverflowError(9, 8), UnknownModelError("a", ["b"]), UpstreamError("no", status=429)):
        read = event_from_json(event_json(Failure(error)))
        assert isinstance(read, Failure)
        assert (type(read.error), str(read.error), vars(read.error)) == (type(error), str(error), vars(error))
        assert str(error_from_json(error_json(error))) == str(error)


# Bundles


async def run_bundle(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    capsys.readouterr()
    assert await asyncio.to_thread(cli.main, ["bundle", *map(str, args)]) == 0
    return capsys.readouterr().out


def unpacked(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


PRIVATE = "Mallorca Zebrafish 4711081547 /srv/ledger/überweisung.txt 漢字 😀"
"""Private text of a user."""
PRIVATE_WORDS = ("Mallorca", "Zebrafish", "47110815", "ledger", "überweisung", "berweisung", "漢", r"\u6f22", "sunset")
"""The number is too long to occur by chance in an id or a random replacement."""


def private(path: str) -> dict[str, Any]:
    """A conversation in which every message contains private text."""
    said = f"{PRIVATE} sunset {CALL}"
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": json.dumps({"city": said})},
    }
    if path == CHAT:
        turns = [
            {"role": "system", "content": said},
            {"role": "user", "content": [{"type": "text", "text": said}], "name": "Mallorca"},
            {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": said},
        ]
        return {"messages": turns, "tools": TOOLS, "user": "Zebrafish"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": said}]}
    asked = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": said, "Mallorca": [said]}}
    turns = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": [{"type": "text", "text": said}, asked]},
        {"role": "user", "content": [result]},
    ]
    return {
        "system": said,
        "messages": turns,
        "max_tokens": 9,
        "tools": anthropic_tools(TOOLS),
        "metadata": {"user_id": said},
    }


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("mode", ["native", "prompt"])
async def test_bundle_hides_content_and_reproduces_problem(
    mode: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f'{PRIVATE}\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{PRIVATE} \\u6f22"'
    async with keeping(
        tmp_path / "kept", says(*re.findall(r"(?s).{1,3}", words)), tool_mode=mode, call_format="hermes"
    ) as url:
        body = {"model": "m", "stream": True, **private(path)}
        async with http_client(url) as client:
            headers = {"x-private": "Mallorca"}
            assert (await client.post(path, json=body, headers=headers)).status_code == 200
        [folder] = await kept(tmp_path / "kept")
    said = await run_bundle(capsys, folder, "-o", tmp_path / "bug.zip")
    assert "the problem is still in it" in said
    made = unpacked(tmp_path / "bug.zip")
    for name, text in made.items():
        assert [word for word in PRIVATE_WORDS if word in text] == [], name
    assert len(made["body"].encode()) == len((folder / "body").read_bytes())
    assert "get_weather" in made["body"]
    assert "get_weather" in made["1/text-1.txt"]
    for line, other in zip(
        lines(folder / "1/model-output-1.jsonl"), made["1/model-output-1.jsonl"].splitlines(), strict=True
    ):
        assert {k: len(str(v).encode()) for k, v in line.items()} == {
            k: len(str(v).encode()) for k, v in json.loads(other).items()
        }
    status, explained = await run_replay(capsys, tmp_path / "bug.zip", "--explain")
    assert status == 0
    assert "no whole call" in explained
    status, again = await run_replay(capsys, tmp_path / "bug.zip", "--chunking", "random")
    assert status == 0, again


@pytest.mark.parametrize("word", ["schön", "schöf"])
async def test_character_split_between_chunks_is_bundled(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An "f" at the end is buffered, as a call may begin with it (`functools[`); other letters are not."""
    said = json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}, ensure_ascii=False)
    data = f"data: {said}\n\ndata: [DONE]\n\n".encode()
    middle = data.index("ö".encode()) + 1
    told = [{"ms": 0, "target": CHAT}, *({"ms": 1, **chunk_to_json(part)} for part in (data[:middle], data[middle:]))]
    path = write_bundle(tmp_path / "bug.zip", {"1/model-output-1.jsonl": jsonl(told)})
    assert "the problem is still in it" in await run_bundle(capsys, path, "-o", tmp_path / "out.zip")
    _, *made = unpacked(tmp_path / "out.zip")["1/model-output-1.jsonl"].splitlines()
    assert [len(chunk_from_json(json.loads(line))) for line in made] == [middle, len(data) - middle]


@pytest.mark.parametrize("broken", FAILING_TEXTS.values(), ids=FAILING_TEXTS)
async def test_failing_parse_is_reproduced_by_its_bundle(
    broken: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, why = broken
    async with keeping(
        tmp_path / "kept", says(*re.findall(r"(?s).{1,4}", text)), tool_mode="parse", call_format="hermes"
    ) as url:
        await ask(url, CHAT, True, tools=TOOLS)
        await kept(tmp_path / "kept")
    said = await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip")
    assert "the problem is still in it" in said
    status, explained = await run_replay(capsys, tmp_path / "bug.zip", "--explain")
    assert status == 0
    assert why in explained


async def test_bundle_that_parses_differently_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The replacement of a value does not match the schema's pattern."""
    tool = json.loads(json.dumps(TOOLS[0]))
    tool["function"]["parameters"]["properties"]["city"] = {"type": "string", "pattern": "^Paris$"}
    async with keeping(tmp_path / "kept", says(CALL), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=[tool])
        await kept(tmp_path / "kept")
    said = await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip")
    assert "NOT parsed like the capture" in said
    assert "+Notice invalid_call" in said
    report = json.loads(await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip", "--json"))
    assert (report["file"], report["anonymized"]) == (str(tmp_path / "bug.zip"), True)
    assert report["same_outcome"] is False
    assert "+Notice invalid_call" in "".join(report["difference"])
    said = await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip", "--no-anonymize")
    assert "ALL MESSAGES" in said
    assert "Paris" in unpacked(tmp_path / "bug.zip")["1/text-1.txt"]
    assert (await run_replay(capsys, tmp_path / "bug.zip"))[0] == 0
    status, printed = await run_replay(capsys, tmp_path / "bug.zip", "--json")
    report = json.loads(printed)
    assert (status, report["notes"]) == (0, [])
    assert [stage["same"] for stage in report["stages"]] == [True] * len(report["stages"])
    assert {"values", "request 1"} <= {stage["stage"] for stage in report["stages"]}
    status, _ = await run_replay(capsys, tmp_path / "bug.zip", "--json", "--explain")
    assert status == 2


async def test_bundle_report_as_json_has_all_lines_of_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = json.loads(json.dumps(TOOLS[0]))
    tool["function"]["parameters"]["properties"]["city"] = {"type": "string", "pattern": "^Paris"}
    calls = [CALL.replace("Paris", f"Paris {n}") for n in range(20)]
    async with keeping(tmp_path / "kept", says(*calls), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=[tool])
        await kept(tmp_path / "kept")
    said = await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip")
    _, _, shown = said.partition("keeps all texts:\n")
    report = json.loads(await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip", "--json"))
    assert len(report["difference"]) > 13
    more = len(report["difference"]) - 12
    assert shown.splitlines()[12:] == [f"  … {more} more lines; --json prints all"]


async def test_bundle_contains_no_paths_or_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = tmp_path / "of-mine.jinja"
    template.write_text(CHATML)
    more = {"tool_mode": "prompt", "call_format": "hermes", "chat_template": str(template)}
    async with keeping(tmp_path / "kept", says("It is ", CALL), **more) as url:
        await ask(url, CHAT, True, tools=TOOLS)
        await kept(tmp_path / "kept")
    for args in ([], ["--no-anonymize"]):
        await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "bug.zip", *args)
        everything = "".join(unpacked(tmp_path / "bug.zip").values())
        assert str(tmp_path) not in everything
        assert url.removeprefix("http://") not in everything
        assert not re.search(r"127\.0\.0\.1:\d", everything)


SECRET = "Mallorca"
HIDDEN = {
    "lists in arguments": {"input": {"text": [SECRET], "tools": [SECRET], "functions": [{SECRET: 1}]}},
    "objects in arguments": {"input": {"stop": {"at": SECRET}, "response_format": {"id": SECRET, "type": SECRET}}},
    "numbers in arguments": {"input": {"account": 4711081547, "lat": 47110815.47, "n": [-4711081547, 4711081547e3]}},
    "metadata": {"metadata": {"id": SECRET, "kind": SECRET, SECRET: "yes"}},
    "words that are no API's": {"status": SECRET, "format": SECRET, "event": SECRET, "detail": f"in {SECRET}"},
    "words of a type": {"type": f"The {SECRET}", "id": f"of {SECRET}", "stop": SECRET},
}
"""By location: members of a message, and of the model's output."""


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
async def test_private_text_in_any_member_is_anonymized(
    hidden: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "get_weather", **hidden}]}
    body = json.dumps({"model": "m", "messages": [said], **(hidden if "metadata" in hidden else {})}).encode()
    heard = jsonl([{"ms": 0, "target": CHAT}, {"ms": 1, **chunk_to_json(json.dumps({"error": hidden}).encode())}])
    path = write_bundle(tmp_path / "bug.zip", {"body": body, "1/model-output-1.jsonl": heard})
    await run_bundle(capsys, path, "-o", tmp_path / "out.zip")
    made = unpacked(tmp_path / "out.zip")
    assert "get_weather" in made["body"]
    assert (len(made["body"]), json.loads(made["body"])["model"]) == (len(body), "m")
    for name, text in made.items():
        assert SECRET not in text, name
        assert "47110815" not in text, name


async def test_upstream_error_text_is_anonymized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = whole(400, json.dumps({"error": {"message": f"{PRIVATE} is not allowed"}}))
    async with keeping(tmp_path / "kept", refusal) as url:
        await ask(url, CHAT, True)
        [folder] = await kept(tmp_path / "kept")
    assert "Mallorca" in (folder / "1/model-output-1.jsonl").read_text()
    await run_bundle(capsys, folder, "-o", tmp_path / "bug.zip")
    for name, text in unpacked(tmp_path / "bug.zip").items():
        assert [word for word in PRIVATE_WORDS if word in text] == [], name
    status, said = await run_replay(capsys, tmp_path / "bug.zip")
    assert status == 0, said


async def test_bundle_keeps_tool_names_and_schemas_without_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This includes tools with parameters named like members that are removed."""
    named = {"type": "object", "properties": {n: {"type": "string"} for n in ("title", "description", "headers")}}
    schema = {**named, "description": SECRET, "title": SECRET, "examples": [{"title": SECRET}], "required": ["title"]}
    tools = [
        {"name": "note", "description": f"Writes for {SECRET}", "input_schema": schema},
        {"type": "mcp", "name": "far", "server_url": f"https://{SECRET}.example", "headers": {"x": SECRET}},
    ]
    told = {"tools": tools, "stop_sequences": [SECRET], "max_tokens": 9}
    async with keeping(tmp_path / "kept", says("It is noted."), tool_mode="prompt", call_format="hermes") as url:
        await ask(url, MESSAGES, True, **{**told, "tools": tools[:1]})
        [folder] = await kept(tmp_path / "kept")
    await run_bundle(capsys, folder, "-o", tmp_path / "out.zip")
    made = unpacked(tmp_path / "out.zip")
    assert [name for name, text in made.items() if SECRET in text] == []
    [tool] = json.loads(made["body"])["tools"]
    assert tool["name"] == "note"
    assert {name: tool["input_schema"][name] for name in named} == named
    assert tool["input_schema"]["required"] == ["title"]
    assert '"name": "note"' in json.loads(made["1/sent-1.json"])["messages"][0]["content"]
    body = json.dumps({"model": "m", "messages": [], **told}).encode()
    tool = {"is": "Tool", "name": "note", "description": SECRET, "parameters": json.dumps(schema)}
    values = json.dumps({"is": "Request", "model": "m", "messages": [], "tools": [tool]}).encode()
    given = {"body": body, "1/values.json": values, "values.json": b'{"is": "PreviousResponseRef"}'}
    await run_bundle(capsys, write_bundle(tmp_path / "bug.zip", given), "-o", tmp_path / "out.zip")
    made = unpacked(tmp_path / "out.zip")
    assert [name for name, text in made.items() if SECRET in text] == []
    assert json.loads(made["body"])["tools"][1]["type"] == "mcp"
    assert json.loads(json.loads(made["1/values.json"])["tools"][0]["parameters"])["properties"] == named["properties"]


@pytest.mark.parametrize("folder", ["/Users/Mallorca/models/", "~/Mallorca/", "C:\\Mallorca\\", "Mallorca/x/"])
async def test_bundle_keeps_only_file_name_of_model_path(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"{folder}Qwen3-8B.Q4_K_M.gguf"
    async with keeping(tmp_path / "kept", says("It is."), models=(model,)) as url:
        asked = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        async with http_client(url) as client:
            assert (await client.post(CHAT, json=asked)).status_code == 200
        await kept(tmp_path / "kept")
    assert "the problem is still in it" in await run_bundle(capsys, tmp_path / "kept", "-o", tmp_path / "out.zip")
    made = unpacked(tmp_path / "out.zip")
    assert [name for name, text in made.items() if SECRET in text] == []
    assert json.loads(made["body"])["model"].endswith("Qwen3-8B.Q4_K_M.gguf")
    assert json.loads(made["1/backend.json"])["model"] == json.loads(made["body"])["model"]


def test_anonymizer_keeps_shape_and_kept_words() -> None:
    fill = Anonymizer(["get_weather city", "<|im_end|>"], b"salt")
    text = 'Über 12 Äpfel? <|im_end|>{"name": "get_weather", "n": 0.75, "t": "a\\nb\\u00e9", "city": "漢字😀\\ud83d"}'
    made = fill.anonymize(text)
    assert len(made) == len(text)
    assert len(made.encode()) == len(text.encode())
    assert re.sub(r"\w", "x", made) == re.sub(r"\w", "x", text)
    assert "get_weather" in made
    assert "<|im_end|>" in made
    assert '"city"' in made
    assert "Äpfel" not in made
    assert "0.7" not in made or "0.75" not in made
    assert fill.anonymize("Ada and ada and bob").split()[0].lower() == fill.anonymize("ada")
    assert len({fill.anonymize(word) for word in ("alpha", "omega", "gamma")}) == 3
    assert fill.anonymize("alpha") != Anonymizer([], b"other").anonymize("alpha")


def test_word_split_between_stream_chunks_is_anonymized_as_one() -> None:
    fill = Anonymizer(["get_weather"], b"salt")
    stream = "".join(
        f'data: {{"delta": {{"content": "{piece}"}}, "id": "x1"}}\n\n' for piece in ("ge", "t_wea", "ther pl", "ace")
    )
    made = map_strings(stream, fill.anonymize, KeepRules(kept_strings={"id": re.compile(".*")}))
    assert made.count('"id": "x1"') == 4
    words = "".join(re.findall(r'"content": "(.*?)"', made))
    assert words == f"get_weather {fill.anonymize('place')}"
    assert "secret" not in map_strings('data: {"content": "my secret', fill.anonymize)


@given(st.text(max_size=60), st.lists(st.text(max_size=8), max_size=3), st.integers(0, 99))
def test_anonymizer_keeps_shape_of_any_text(text: str, keep: list[str], seed: int) -> None:
    fill = Anonymizer(keep, bytes([seed]))
    made = fill.anonymize(text)
    assert len(made) == len(text)
    assert [len(char.encode()) for char in made] == [len(char.encode()) for char in text]
    assert fill.anonymize(text) == made
    said = json.dumps({"content": text, "arguments": json.dumps({"city": text})}, ensure_ascii=bool(seed % 2))
    filled = map_strings(said, fill.anonymize)
    assert len(filled) == len(said)
    assert json.loads(filled).keys() == {"content", "arguments"}
    assert json.loads(json.loads(filled)["arguments"]).keys()
    assert len(Redactor(keep).redact_text(said)) == len(said)


@given(st.lists(st.text(max_size=9)), st.sampled_from(get_args(ChunkMode)), st.integers(0, 99))
def test_rechunker_does_not_change_text(pieces: list[str], cut: ChunkMode, seed: int) -> None:
    recut = Rechunker(cut, seed)
    made = [piece for text in pieces for piece in recut.feed(text)] + recut.close()
    assert "".join(made) == "".join(pieces)
    if cut == "whole":
        assert len(made) <= 1
    if cut == "chars":
        assert all(len(piece) == 1 for piece in made)


# Invalid captures

CAPTURES = DATA / "captures"
DEEP = b"[" * 100_000
INVALID_FILES = {
    "a summary that is a list": {"summary.json": b"[]"},
    "a summary with a turn that is none": {"summary.json": b'{"context": []}'},
    "a summary with warnings that are none": {"summary.json": b'{"warnings": ["it is"]}'},
    "a summary with a guard of another kind": {"summary.json": b'{"guard": {"buffer_limit_chars": "many"}}'},
    "a request that is a list": {"request.json": b"[]"},
    "headers that are a list": {"request.json": b'{"headers": []}'},
    "JSON that is too deep": {"request.json": DEEP},
    "JSON that is none": {"request.json": b"{"},
    "a backend that tells nothing": {"1/backend.json": b'{"kind": "http"}'},
    "a backend that tells otherwise": {"1/backend.json": b'{"kind": "http", "model_mode": {"tool_mode": 1}}'},
    "a backend with an error that is none": {"1/backend.json": b'{"error": "it broke"}'},
    "values that are a list": {"1/values.json": b"[]"},
    "tools that are none": {"1/values.json": b'{"tools": [1]}'},
    "events that are none": {"1/events.jsonl": b"[]\n{}\n"},
}
"""By what is wrong: the invalid files of a capture."""


def write_bundle(path: Path, changed: dict[str, bytes]) -> Path:
    """A capture as a zip file, with these files changed."""
    [folder] = CAPTURES.iterdir()
    made = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in (made | changed).items():
            bundle.writestr(name, data)
    return path


def is_rejected(capsys: pytest.CaptureFixture[str], command: str, path: Path, *args: str) -> bool:
    """Returns whether the command rejects the path with "is not a capture"."""
    status = cli.main([command, str(path), *args])
    return status == 2 and "is not a capture" in capsys.readouterr().err


@pytest.mark.parametrize("files", INVALID_FILES.values(), ids=INVALID_FILES)
def test_capture_with_invalid_file_is_rejected(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_bundle(tmp_path / "bug.zip", files)
    assert is_rejected(capsys, "replay", path)
    assert is_rejected(capsys, "bundle", path, "-o", str(tmp_path / "out.zip"))
    assert not (tmp_path / "out.zip").exists()


@pytest.mark.parametrize("said", [b"", b'{"text": "it came from nowhere"}\n'], ids=["nothing", "no place"])
def test_bundle_rejects_upstream_text_without_request(
    said: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_bundle(tmp_path / "bug.zip", {"1/model-output-1.jsonl": said})
    assert is_rejected(capsys, "bundle", path, "-o", str(tmp_path / "out.zip"))
    assert cli.main(["replay", str(path)]) == 1


@pytest.mark.parametrize("broken", ["corrupt", "locked", "packed otherwise", "no zip"])
def test_unreadable_zip_is_rejected(broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_bundle(tmp_path / "bug.zip", {})
    data = bytearray(path.read_bytes())
    first, listed = data.index(b"PK\3\4"), data.index(b"PK\1\2")
    if broken == "corrupt":
        data[first + 60 : first + 90] = b"\xff" * 30
    elif broken == "locked":
        data[first + 6] |= 1
        data[listed + 8] |= 1
    elif broken == "packed otherwise":
        data[first + 8] = data[listed + 10] = 14
    else:
        data = data[: len(data) // 2]
    path.write_bytes(data)
    assert is_rejected(capsys, "replay", path)
    assert is_rejected(capsys, "bundle", path, "-o", str(tmp_path / "out.zip"))


def test_capture_in_current_directory_has_its_folder_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [folder] = CAPTURES.iterdir()
    shutil.copytree(folder, tmp_path / folder.name)
    monkeypatch.chdir(tmp_path / folder.name)
    assert cli.main(["bundle", "."]) == 0
    assert Path(f"{folder.name}.zip").is_file()
    capsys.readouterr()
    assert cli.main(["replay", "."]) == 0
    assert capsys.readouterr().out.startswith(f"{folder.name}: ")


# The documentation


@pytest.mark.parametrize("command", [c for c in doc_examples.commands("docs/debugging.md") if c.printed], ids=str)
def test_documented_commands_print_documented_output(
    command: doc_examples.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exchange was captured when the page was written."""
    shutil.copytree(DATA / "captures", tmp_path / "captures")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # without a terminal, lines are not wrapped
    assert cli.main(command.ours) == 0
    printed = capsys.readouterr().out
    assert doc_examples.matches(command.printed, printed), printed


@pytest.mark.parametrize("declared", [True, False])
async def test_tool_searches_are_replayed(declared: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in a bundle, where the descriptions, in which the search would look, are replaced by other words."""
    name = "tool_search_tool_bm25" if declared else "tool_search"
    search = f'<tool_call>\n{{"name": "{name}", "arguments": {{"query": "mallorca"}}}}\n</tool_call>'
    weather = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Palma"}}\n</tool_call>'

    async def play(server: Server, writer: Any) -> None:
        await says(weather if b"You can call these" in server.asked[-1][2] else search)(server, writer)

    tools: list[dict[str, Any]] = [
        {"name": name, "description": about, "input_schema": {"type": "object", "properties": {"city": {}}}}
        for name, about in (("get_weather", "Sunshine of Mallorca."), ("list_files", "Files."), ("send", "Mail."))
    ]
    if declared:
        tools = [{**tool, "defer_loading": True} for tool in tools]
        tools.append({"type": "tool_search_tool_bm25_20251119", "name": name})
    async with server(play) as far:
        config = HttpConfig(f"{far.url}/v1", models=("m",), tool_mode="prompt", call_format="hermes", auto_probe=False)
        gateway = Gateway([HttpBackend("far", config, {})], vendor_tools=VendorToolRunner({}, search_above=2))
        capture = CaptureConfig(dir=str(tmp_path / "kept"))
        async with serving(gateway, capture=capture) as (_, url), http_client(url) as client:
            asking = [{"role": "user", "content": "How is the weather?"}]
            body = {"model": "m", "max_tokens": 99, "stream": True, "tools": tools, "messages": asking}
            answer = (await client.post(MESSAGES, json=body)).text
            assert "get_weather" in answer
            assert ("tool_reference" in answer) is declared
        (kept_folder,) = await kept(tmp_path / "kept")
    status, said = await run_replay(capsys, kept_folder)
    assert (status, set(stages(said).values())) == (0, {"same"})
    bundle = tmp_path / "bug.zip"
    assert await asyncio.to_thread(cli.main, ["bundle", str(kept_folder), "-o", str(bundle)]) == 0
    capsys.readouterr()
    assert "Mallorca" not in "".join(unpacked(bundle).values())
    _, said = await run_replay(capsys, bundle)
    compared = stages(said)
    assert {compared[name] for name in ("values", "request 1", "events 1", "events 2", "events", "reply")} == {"same"}
