"""Captured exchanges: which file contains which stage, what is redacted, and that capturing never breaks a response.

client ─HTTP→ gateway, which captures ─HTTP→ a server scripted by the test
"""

import itertools
import json
import logging
import re
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import CaptureConfig
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, UsageUpdate, VendorBlock, VendorBlockStart
from dragoman.core.messages import Image, MediaSource, Request, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.redaction.opaque_text import opaque, read_opaque
from dragoman.redaction.redact import Redactor, redact_headers, secret_variables
from dragoman.server.capture import store
from dragoman.server.capture.load import LoadedCapture, load
from dragoman.server.capture.recorder import MAX_BYTES, CaptureRecorder
from dragoman.server.capture.replay import Replay
from dragoman.server.observe import debug_log
from dragoman.server.observe.observer import CompositeObserver, ServerObserver
from dragoman.vendor_tools.tool import CodeOutput, FetchedPage, SearchHit, ToolRunResult
from support.capturing import SECRET, TOOLS, folders, keeping, kept, lines, says
from support.fake_upstream import ask, dies, server, whole
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client
from support.scripted_backend import Scripted, eventually, serving


async def test_each_stage_is_written_to_its_file(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    async with keeping(tmp_path / "kept", says(call[:20], call[20:]), tool_mode="parse", call_format="hermes") as url:
        answer = await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path / "kept")
    assert folder.name.endswith(answer.headers["x-request-id"])
    came = json.loads((folder / "request.json").read_text())
    assert (came["method"], came["path"]) == ("POST", CHAT)
    body = json.loads((folder / "body").read_bytes())
    assert body["tools"] == TOOLS
    values = json.loads((folder / "values.json").read_text())
    assert values["tools"][0]["name"] == "get_weather"
    assert values["messages"][0]["parts"] == [{"is": "Text", "text": "hi"}]
    backend = json.loads((folder / "1/backend.json").read_text())
    assert backend["backend"] == "far"
    assert (backend["model_mode"]["tool_mode"], backend["model_mode"]["call_format"]) == ("parse", "hermes")
    sent = json.loads((folder / "1/sent-1.json").read_bytes())
    assert sent["tools"] == TOOLS
    first, *said, _ = said_all = lines(folder / "1/model-output-1.jsonl")
    assert first["target"] == CHAT
    assert "".join(line["text"] for line in said_all[1:]).count("data: ") == 5
    assert all(a["ms"] <= b["ms"] for a, b in itertools.pairwise(said))
    assert (folder / "1/text-1.txt").read_text() == call
    assert [e["event"] for e in lines(folder / "1/events.jsonl")][:2] == ["Start", "ToolCallStart"]
    left = lines(folder / "events.jsonl")
    assert [e["event"] for e in left][-1] == "Finish"
    assert next(e for e in left if e["event"] == "ToolCallEnd")["schema_valid"] is True
    head, *pieces = lines(folder / "reply.jsonl")
    assert head["status"] == 200
    assert "".join(piece["text"] for piece in pieces) == answer.text
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["log"]["finish"] == "tool_calls"
    assert summary["log"]["id"] == answer.headers["x-request-id"]
    assert summary["guard"]["buffering"] == "short"


async def test_capture_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    async with keeping(tmp_path / "kept", says("hi")) as url:
        await ask(url, CHAT, True)
        await kept(tmp_path / "kept")
    for path in [tmp_path / "kept", *(tmp_path / "kept").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


async def test_secrets_are_redacted_from_capture(tmp_path: Path) -> None:
    own, bearer = "the-gateways-own-key", "Bearer abcdefghijklmnopqrstuvwx"
    said = says(f"your key is {SECRET} ", f"and {bearer}, and sk-live-abc", "defghijklmnop")
    async with keeping(tmp_path, said, {"api_keys": (own,)}) as url:
        for path in (CHAT, MESSAGES):
            sent = {"authorization": f"Bearer {own}", "cookie": "session=1234567", "x-goog-api-key": "google"}
            tool = {"name": f"{own} {SECRET} {bearer}"}
            answer = await ask(url, path, True, sent, metadata=tool)
            assert answer.status_code == 200
        one, other = await kept(tmp_path, 2)
    for folder in (one, other):
        everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).decode()
        assert "[hidden]" in everything
        for secret in (own, SECRET, "abcdefghijklmnopqrstuvwx", "1234567", '"google"', "sk-live-abc", "defghijklmnop"):
            assert secret not in everything


async def test_secrets_in_opaque_text_are_redacted(tmp_path: Path) -> None:
    hidden = f"ä OPENAI_API_KEY={SECRET} and more"
    async with keeping(tmp_path, says("hi")) as url:
        await ask(url, CHAT, True, metadata={"a": opaque(hidden)})
        [folder] = await kept(tmp_path)
    sent = json.loads((folder / "body").read_text())["metadata"]["a"]
    text = read_opaque(sent)
    assert text is not None
    assert SECRET not in text
    assert (text.startswith("ä OPENAI_API_KEY=*"), text.endswith(" and more"), len(text)) == (True, True, len(hidden))


async def test_capture_header_off_disables_capture(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("hi")) as url:
        await ask(url, CHAT, True, {"x-dragoman-capture": "off"})
        await ask(url, CHAT, True)
        [folder] = await kept(tmp_path)
        assert (await ask(url, CHAT, True, {"x-dragoman-capture": "yes"})).status_code == 400
    assert len(folders(tmp_path)) == 1
    assert "x-dragoman-capture" not in (folder / "request.json").read_text()


async def test_filter_requested_captures_only_requested_exchanges(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("hi"), {}, CaptureConfig(filter="requested")) as url:
        await ask(url, CHAT, True)
        await ask(url, CHAT, True, {"x-dragoman-capture": "on"})
        [folder] = await kept(tmp_path)
    assert "x-dragoman-capture" in (folder / "request.json").read_text()


async def test_filter_failed_captures_errors_warnings_and_requested(tmp_path: Path) -> None:
    failed = CaptureConfig(filter="failed")
    async with keeping(tmp_path, says("hi"), {}, failed) as url:
        await ask(url, CHAT, True)
        refused = await ask(url, CHAT, True, tools="none")
        wanted = await ask(url, CHAT, True, {"x-dragoman-capture": "on"})
        assert request_ids(await kept(tmp_path, 2)) == [answer.headers["x-request-id"] for answer in (refused, wanted)]
    broken = says("<tool_call>\n", '{"name": "no_such_tool", "arguments": {}}\n</tool_call>')
    async with keeping(tmp_path, broken, {}, failed, tool_mode="parse", call_format="hermes") as url:
        warned = await ask(url, CHAT, True, tools=TOOLS)
        assert request_ids(await kept(tmp_path, 3))[-1] == warned.headers["x-request-id"]


def request_ids(exchanges: list[Path]) -> list[str]:
    return [folder.name.partition("-")[2] for folder in exchanges]


async def test_invalid_request_is_captured(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("hi")) as url:
        await ask(url, CHAT, True, temperature="warm")
        [folder] = await kept(tmp_path)
    assert json.loads((folder / "body").read_bytes())["temperature"] == "warm"
    assert not (folder / "values.json").exists()
    assert json.loads((folder / "summary.json").read_text())["log"]["status"] == 400
    assert "$.temperature" in (folder / "reply.jsonl").read_text()


async def test_upstream_error_and_disconnect_are_captured(tmp_path: Path) -> None:
    async with keeping(tmp_path, whole(400, '{"error": {"message": "no"}}')) as url:
        await ask(url, CHAT, True)
        [folder] = await kept(tmp_path)
    *_, last = lines(folder / "1/model-output-1.jsonl")
    assert (last["error"]["error"], last["error"]["status"]) == ("UpstreamError", 400)
    async with keeping(tmp_path / "other", dies) as url:
        await ask(url, CHAT, True)
        [folder] = await kept(tmp_path / "other")
    *_, piece, last = lines(folder / "1/model-output-1.jsonl")
    assert "It is" in piece["text"]
    assert last["error"]["error"] == "BackendUnavailableError"
    assert lines(folder / "events.jsonl")[-1]["event"] == "Failure"


async def test_passthrough_response_is_captured(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("hi"), passthrough=True) as url:
        answer = await ask(url, CHAT, True)
        [folder] = await kept(tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["log"]["passthrough"], summary["is_cut"]) == (True, False)
    assert (folder / "1/text-1.txt").read_text() == "hi"
    assert "".join(line["text"] for line in lines(folder / "reply.jsonl")[1:]) == answer.text
    assert not (folder / "events.jsonl").exists()


async def test_re_ask_is_captured_as_second_turn(tmp_path: Path) -> None:
    async with keeping(tmp_path, says("It is sunny.")) as url:
        await ask(url, CHAT, True, tools=TOOLS, tool_choice="required")
        [folder] = await kept(tmp_path)
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"1", "2"}
    one, two = (json.loads((folder / f"{n}/values.json").read_text()) for n in (1, 2))
    assert len(two["messages"]) > len(one["messages"])


async def test_oldest_captures_are_pruned(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    async with keeping(tmp_path, says("hi"), {}, CaptureConfig(max_exchanges=2)) as url:
        made = [(await ask(url, CHAT, True)).headers["x-request-id"] for _ in range(4)]
        await eventually(lambda: any(path.name.endswith(made[3]) for path in folders(tmp_path)))
        await eventually(lambda: len(folders(tmp_path)) == 3)
    assert request_ids(folders(tmp_path)) == [*made[2:], ""]
    newest = folders(tmp_path)[1]
    store.prune(tmp_path, max_exchanges=5, max_bytes=1)
    assert folders(tmp_path) == [newest, tmp_path / "mine"]  # the newest one is kept, whatever its size


async def test_unwritable_capture_directory_does_not_break_response(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "kept"
    caplog.set_level(logging.WARNING, "dragoman.capture")
    async with keeping(place, says("hi")) as url:
        shutil.rmtree(place)
        place.write_text("no folder")
        for _ in range(3):
            assert "[DONE]" in (await ask(url, CHAT, True)).text
        await eventually(lambda: caplog.records)
        place.unlink()
        place.mkdir()
        await ask(url, CHAT, True)
        await kept(place)
    [told] = caplog.records
    assert "cannot be kept" in told.getMessage()


async def test_deleted_template_does_not_break_capture(tmp_path: Path) -> None:
    (template := tmp_path / "of-mine.jinja").write_text("{{ messages }}")
    far = {"tool_mode": "prompt", "call_format": "hermes", "chat_template": str(template)}
    async with keeping(tmp_path / "kept", says("hi"), **far) as url:
        await ask(url, CHAT, True)
        template.unlink()
        assert "[DONE]" in (await ask(url, CHAT, True)).text
        _, folder = await kept(tmp_path / "kept", 2)
    assert "cannot read the chat template" in json.loads((folder / "1/backend.json").read_text())["describe_error"]


def test_impossible_capture_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot make .*: not a directory - at capture.dir"):
        store.folder(str(tmp_path / "file" / "kept"))


async def test_exchange_of_disconnected_client_is_captured(tmp_path: Path) -> None:
    async def endless(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("Hello")
        await backend.go.wait()
        yield Finish("stop")

    backend = Scripted(endless)
    async with serving(Gateway([backend]), capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
        async with http_client(url) as client:
            asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            async with client.stream("POST", CHAT, json=asked) as answer:
                await anext(answer.aiter_raw())
        [folder] = await kept(tmp_path)
    assert json.loads((folder / "summary.json").read_text())["log"]["status"] == 499
    assert [line["event"] for line in lines(folder / "events.jsonl")] == ["Start", "TextDelta"]


def test_observers_keep_all_fields_of_the_context() -> None:
    values = {"new_id": lambda: "new", "observer": None}
    fields = {name: values.get(name, name) for name in ExchangeContext.__struct_fields__}
    context = ExchangeContext(**fields)
    recorder = CaptureRecorder("POST", CHAT, {}, lambda: 0.0)
    debug = debug_log.DebugLog("req_1")
    for observer in (ServerObserver(), recorder, debug, CompositeObserver(recorder, debug)):
        wrapped = observer.wrap_context(context)
        assert wrapped.new_id() == "new"
        for name in set(fields) - {"new_id", "observer"}:
            assert getattr(wrapped, name) == name, (observer, name)


def test_replay_keeps_all_other_fields_of_the_context(tmp_path: Path) -> None:
    captured = {"id": "captured", "created": 7, "ids": ["one"]}
    (tmp_path / "request.json").write_text("{}")
    (tmp_path / "summary.json").write_text(json.dumps({"context": captured}))
    fields = {name: name for name in ExchangeContext.__struct_fields__}
    wrapped = Replay(LoadedCapture(*load(tmp_path))).wrap_context(ExchangeContext(**cast(Any, fields)))
    assert (wrapped.id, wrapped.created, wrapped.new_id()) == ("captured", 7, "one")
    for name in set(fields) - {"id", "created", "new_id", "observer"}:
        assert getattr(wrapped, name) == name


LARGE = "x" * (MAX_BYTES // 2 + 1)


@pytest.mark.parametrize(
    "result",
    [
        ToolRunResult(LARGE),
        ToolRunResult("", images=(Image(MediaSource("image/png", LARGE)),)),
        ToolRunResult("", hits=(SearchHit("https://a.org", "A", LARGE),)),
        ToolRunResult("", page=FetchedPage("https://a.org", "A", LARGE)),
        ToolRunResult("", output=CodeOutput(LARGE)),
        ToolRunResult("", output=CodeOutput("", LARGE)),
    ],
)
async def test_whole_result_of_a_tool_counts_for_the_limit(result: ToolRunResult) -> None:
    async def run() -> ToolRunResult:
        return result

    recorder = CaptureRecorder("POST", CHAT, {}, lambda: 0.0)
    for _ in range(2):
        assert await recorder.run_tool("web_search", "{}", run) is result
    assert (recorder.is_cut, len(recorder.tool_runs)) == (True, 1)


async def test_blocks_of_a_vendor_count_for_the_limit() -> None:
    async def batches() -> AsyncGenerator[list[AnyEvent], None]:
        yield [VendorBlockStart("openai_responses", "mcp_call", LARGE)]
        yield [VendorBlock("openai_responses", "mcp_call", LARGE)]

    recorder = CaptureRecorder("POST", CHAT, {}, lambda: 0.0)
    assert len([batch async for batch in recorder.wrap_client_events(batches())]) == 2
    assert (recorder.is_cut, len(recorder.events)) == (True, 1)


def test_streams_are_not_wrapped_without_capture() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b""

    context, said = ExchangeContext("", 0, str), pieces()
    assert context.wrap_model_output("", b"", said) is said
    events = context.generate(Scripted(lambda backend, request: nothing()), Request("m", ()))
    assert events.ag_code.co_qualname == "Scripted.generate"


async def nothing() -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer *************"),
        ('{"api_key": "abcdefgh"}', '{"api_key": "********"}'),
        (r'{"body": "{\"password\": \"abcdefgh\"}"}', r'{"body": "{\"password\": \"********\"}"}'),
        ("OPENAI_API_KEY=abcdefgh npm test", "OPENAI_API_KEY=******** npm test"),
        ("sk-proj-abcdefghijklmnopqrst", "****************************"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefgh", "*" * 45),
        ("known: hush-hush", "known: *********"),
        ('{"authorization":"Token abcdef01"}', '{"authorization":"**************"}'),
        ('{"accessToken":"abcdefgh", "token": "ijklmn"}', '{"accessToken":"********", "token": "******"}'),
        ('{"password": "correct \\"horse\\" battery", "a": 1}', '{"password": "*************************", "a": 1}'),
        (r'"{\"secret\": \"a \\\"b\\\" c\"}"', r'"{\"secret\": \"*************\"}"'),
        ("_authToken=npm_0123", "_authToken=********"),
        ("password: hunter2secret", "password: *************"),
        ("aws_secret_access_key = a1/b2+c3", "aws_secret_access_key = ********"),
        ('curl -H "x-api-key: abcdefgh"', 'curl -H "x-api-key: ********"'),
        ("Authorization: ApiKey s3cr3tabc", "Authorization: ApiKey *********"),
        ("Authorization: Custom s3cr3tabc", "Authorization: ****************"),
        ("postgres://u:p@w@h/db", "postgres://u:***@h/db"),
        (r"postgres:\/\/u:pw@h", r"postgres:\/\/u:**@h"),
        ("-----BEGIN A PRIVATE KEY-----\nProc-Type: 4", "-----BEGIN A PRIVATE KEY-----*************"),
        (r'{"a": "-----BEGIN PRIVATE KEY-----\nMII", "b": 1}', '{"a": "-----BEGIN PRIVATE KEY-----*****", "b": 1}'),
        (r'"keys:\nsk-live-0123456789abcdef"', r'"keys:\n************************"'),
        (r'{"known": "hush\u002dhush"}', '{"known": "**************"}'),
        ('{"token": 12345678, "tokens": "abcdef12", "max_token": 1.5}', None),
        ("per token: 12345678. The token: therefore", None),
        ("{%- set eos_token = '<|im_end|>' %} token = next_token2()", None),
        ("password: string; token=$TOKEN; http://localhost:8484/v1?a=b@c", None),
        ('{"max_tokens": 1000, "password": {"type": "string"}}', None),
        ('"the secret is out": "sk-short"', None),
    ],
)
def test_redactor_hides_secrets_and_keeps_lengths(text: str, left: str | None) -> None:
    assert Redactor(["hush-hush", "short"]).redact_text(text) == (text if left is None else left)
    assert len(Redactor(["hush-hush"]).redact_bytes(text.encode())) == len(text)


@pytest.mark.parametrize("text", ["sk-", "token=", "password:'", "-----BEGIN PRIVATE KEY-----", "://a:", "\\"])
def test_redactor_takes_linear_time_on_hostile_text(text: str) -> None:
    """This would take minutes if the text were read to the end from each place where a secret may begin."""
    assert len(Redactor(["hush-hush"]).redact_text(text * 100_000 + "(")) == len(text) * 100_000 + 1


def test_secret_headers_and_variables_are_found_by_name() -> None:
    assert redact_headers({"X-Api-Key": "a", "cookie": "b", "accept": "c"}) == {
        "X-Api-Key": "[hidden]",
        "cookie": "[hidden]",
        "accept": "c",
    }
    environ = {
        "A_TOKEN": "0123456789abcdef",
        "KEY_FILE": "/home/me/.keys/one",
        "MAX_TOKENS": "1000",
        "HOME": "/home/me",
    }
    assert secret_variables(environ) == ["0123456789abcdef"]


# Log of steps


async def test_debug_log_contains_all_steps_without_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.steps")
    words = "<tool_call>\n", '{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    async with keeping(tmp_path, says(*words), tool_mode="parse", call_format="hermes") as url:
        id = (await ask(url, CHAT, True, tools=TOOLS)).headers["x-request-id"]
        [folder] = await kept(tmp_path)
        refused = (await ask(url, CHAT, True, temperature="warm")).headers["x-request-id"]
    told = [record.getMessage() for record in caplog.records if record.name == "dragoman.steps"]
    assert {line.partition(" ")[0] for line in told} == {id, refused}
    lines_of = [re.sub(r"\d+", "N", line.removeprefix(id + " ")) for line in told if line.startswith(id)]
    at_any_time = ("received N chunk", "status")  # their position depends on the network
    assert sorted(line.split()[0] for line in lines_of if line.startswith(at_any_time)) == ["received", "status"]
    parsed = [line for line in lines_of if line.startswith("parsed: ")]
    assert parsed == ["parsed: call get_weather", "parsed: call complete", "parsed: end, stop"]
    others = [line for line in lines_of if line not in parsed and not line.startswith(at_any_time)]
    assert others == [
        "received N bytes",
        "parsed as openai_chat for 'm': N message, tools get_weather, streamed",
        "calls far for 'm'",
        "sends N bytes: /vN/chat/completions",
        "first chunk after N ms",
        "sent: call get_weather",
        "sent: call complete, valid",
        "sent: warning estimated_usage",
        "sent: end, stop",
    ]
    assert "Paris" not in "".join(told)
    assert "hi" not in "".join(told).split()
    assert (folder / "1/text-1.txt").read_text() == "".join(words)
    assert [line.split()[1] for line in told if line.startswith(refused)] == ["received", "status"]


async def test_failed_step_is_logged_without_upstream_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.steps")
    async with server(whole(400, '{"error": {"message": "words of the server"}}')) as behind:
        backend = HttpBackend(
            "far", HttpConfig(url=f"{behind.url}/v1", models=("m",), max_retries=0, auto_probe=False), {}
        )
        async with serving(Gateway([backend])) as (_, url):
            await ask(url, CHAT, True)
    told = "\n".join(record.getMessage() for record in caplog.records if record.name == "dragoman.steps")
    assert "sent nothing: UpstreamError: status 400" in told
    assert "words" not in told


async def test_exchange_is_captured_if_metrics_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def miscounts(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("Hello")
        yield UsageUpdate(Usage(-5, 1))
        yield Finish("stop")

    async with serving(Gateway([Scripted(miscounts)]), capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
        answer = await ask(url, CHAT, False)
    assert answer.status_code == 200
    assert len(await kept(tmp_path)) == 1
    assert "could not be counted" in caplog.text
