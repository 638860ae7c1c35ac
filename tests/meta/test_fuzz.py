"""The fuzzers run, find no failure in a few hundred attempts, and detect planted errors."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
import pytest
from fuzz import answers, http, mutate, reader, requests, served

from dragoman import dialects
from dragoman.core import events as ev
from dragoman.core.messages import Request
from dragoman.wire.dialect import UpstreamRequest
from support.format_cases import all_cases


@pytest.mark.parametrize("attempt", [reader.attempt, requests.attempt, answers.attempt])
def test_fuzzer_finds_no_failure(attempt: Callable[[random.Random], str]) -> None:
    chance = random.Random(1)
    assert [failure for _ in range(300) if (failure := attempt(chance))] == []


def test_fuzzer_detects_events_that_depend_on_chunking(monkeypatch: pytest.MonkeyPatch) -> None:
    case = all_cases()[0]
    monkeypatch.setattr(type(case), "read", lambda self, cut: [ev.TextDelta(f"{len(cut)}")])
    assert "a cut changes the events" in reader.wrong(case, 1)


def test_fuzzer_detects_raised_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    case = all_cases()[0]
    monkeypatch.setattr(type(case), "read", lambda self, cut: cut[0][10_000])
    assert reader.wrong(case, 1).startswith("raised IndexError")


@pytest.mark.parametrize(
    "events",
    [
        [ev.ToolCallStart(1, "a", "ping")],
        [ev.ToolCallStart(0, "a", "ping"), ev.ToolCallDelta(0, "[")],
        [ev.ToolCallStart(0, "a", "ping"), ev.ToolCallDelta(0, '{"a": x')],
        [ev.ToolCallStart(0, "a", "ping"), ev.ToolCallDelta(0, "{"), ev.ToolCallEnd(0)],
    ],
)
def test_fuzzer_detects_invalid_event_order(events: Iterable[ev.AnyEvent]) -> None:
    assert reader.broken_stream(events)


def test_fuzzer_detects_lost_text() -> None:
    case = all_cases()[0].changed(text="one two", options={})
    assert reader.lost(case, [ev.TextDelta("one")])
    assert not reader.lost(case, [ev.TextDelta("one "), ev.TextDelta("two")])


def test_fuzzer_detects_error_that_is_not_a_client_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(body: bytes) -> None:
        raise UnicodeError("half a character")

    broken = replace(dialects.get("openai_chat"), read_request=read)
    monkeypatch.setattr(dialects, "get", lambda name: broken)
    assert requests.wrong("openai_chat", b"{}") == "UnicodeError(half a character)"


def test_fuzzer_detects_changed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"user","content":"you"}]}'
    assert requests.wrong("openai_chat", body) == ""
    chat = dialects.get("openai_chat")

    def write(request: Request, model: str) -> UpstreamRequest:
        return chat.write_request(msgspec.structs.replace(request, messages=request.messages[:1]), model)

    monkeypatch.setattr(dialects, "get", lambda name: replace(chat, write_request=write))
    assert "which says something else" in requests.wrong("openai_chat", body)


def test_fuzzer_detects_response_reader_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unending:
        def feed(self, piece: bytes) -> list[ev.AnyEvent]:
            return []

        def close(self) -> list[ev.AnyEvent]:
            return [ev.Start("1", "m", 0)]

    assert answers.wrong("openai_chat", b"data: [DONE]") == ""
    broken = replace(dialects.get("openai_chat"), reader=lambda request, context: Unending())
    monkeypatch.setattr(dialects, "get", lambda name: broken)
    assert answers.wrong("openai_chat", b"data: [DONE]") == "no end"


def test_fuzzer_minimizes_failing_input() -> None:
    assert mutate.smallest("some text, x, and more y of it", lambda t: "x" in t and "y" in t) == "xy"


def test_fuzzer_finds_no_failure_over_http() -> None:
    chance = random.Random(1)
    with served.running() as gateway:
        fuzzer = http.Fuzzer(gateway)
        assert [failure for _ in range(60) if (failure := fuzzer.attempt(chance))] == []
        assert gateway.faults() == ""


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", b'data: {"a":\n1}\n\ndata: [DONE]\n\n'),
        ("openai_chat", b"data: {}\n\n"),
        ("anthropic_messages", b"event: message_start\ndata: {}\n\n"),
        ("openai_responses", b""),
    ],
)
def test_fuzzer_detects_invalid_http_stream(name: str, body: bytes) -> None:
    assert http.broken_stream(name, body)
