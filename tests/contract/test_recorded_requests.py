"""Requests of real clients (`support.client_recordings`): unchanged for their own API, and sent to every other API.

`tests/data/clients/sent.txt` contains the warnings and errors; `--record` updates it.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.core import messages as v
from dragoman.core.errors import ClientError
from dragoman.wire.dialect import Dialect
from support import client_recordings
from support.check_each import check_each
from support.codex_script import OURS
from support.recorded_requests import BY_PATH, RECORDED
from support.scripted_backend import Sent
from support.sent_requests import calls, results, words
from support.sent_requests import told as warned

REPORTS_FILE: Final[Path] = client_recordings.FOLDER / "sent.txt"
DEFAULTS: Final = (
    ("content", ""),
    ("is_error", False),
    ("parallel_tool_calls", True),
    ("stream", False),
    ("tool_choice", "auto"),
    ("tool_choice", {"type": "auto"}),
    ("type", "custom"),
    ("type", "message"),
)
"""Members with their default value."""
CLIENT_ONLY: Final = {"stream_options", "parsed_arguments"}
"""Members that are not forwarded; the dialects explain why."""


def read(sent: Sent) -> tuple[Dialect, v.Request | str]:
    """The request, or why it is invalid."""
    dialect = BY_PATH[sent.path]
    try:
        return dialect, dialect.read_request(sent.body)
    except ClientError as e:
        return dialect, f"{type(e).__name__}: {e}"


def reports() -> dict[str, None]:
    """The warnings and errors of each request, for each API: lines of the file."""
    said: dict[str, list[str]] = {}
    for name, sent in RECORDED.items():
        client, number = name.rsplit(" ", 1)
        dialect, request = read(sent)
        if isinstance(request, str):
            said.setdefault(f"{client} {request}", []).append(number)
            continue
        for to in dialects.names():
            for line in warnings_for(request, to) if to != dialect.name else ():
                said.setdefault(f"{client} → {to} {line}", []).append(number)
    return dict.fromkeys(f"{line} ({', '.join(numbers)})" for line, numbers in said.items())


def warnings_for(request: v.Request, to: str) -> list[str]:
    try:
        return warned(dialects.get(to).write_request(request, "m").warnings)
    except ClientError as e:
        return [f"{type(e).__name__}: {e}"]


def test_recorded_requests_have_expected_warnings_and_errors(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--record"):
        REPORTS_FILE.write_text("\n".join(reports()) + "\n")
    assert list(reports()) == REPORTS_FILE.read_text().splitlines()


def test_recorded_request_is_unchanged_for_its_own_api(subtests: pytest.Subtests) -> None:
    check_each(subtests, RECORDED, check_unchanged)


def check_unchanged(name: str) -> None:
    sent = RECORDED[name]
    dialect, request = read(sent)
    if isinstance(request, str):
        assert "threads are not stored" in request
        return
    written = dialect.write_request(request, request.model)
    assert written.warnings == ()
    assert dialect.read_request(written.body) == request
    if not has_reference(request):
        assert normalized(json.loads(written.body)) == normalized(json.loads(sent.body))


@pytest.mark.parametrize("to", dialects.names())
def test_every_api_gets_texts_calls_results_and_tools(to: str, subtests: pytest.Subtests) -> None:
    check_each(subtests, RECORDED, partial(check_complete, to=to))


def check_complete(name: str, to: str) -> None:
    _, request = read(RECORDED[name])
    if isinstance(request, str) or has_reference(request):
        return
    arrived = dialects.get(to).read_request(dialects.get(to).write_request(request, "m").body)
    assert calls(arrived) == calls(request)
    assert results(arrived) == results(request)
    assert {word for word in words(request) if word} <= {*words(arrived), *system_texts(arrived)}
    functions = [tool for tool in request.tools if tool.kind == "function"]
    assert [tool.name for tool in arrived.tools if tool.kind == "function"] == [tool.name for tool in functions]
    assert [json.loads(t.parameters) for t in arrived.tools if t.kind == "function"] == [
        json.loads(t.parameters) for t in functions
    ]


def has_reference(request: v.Request) -> bool:
    """Returns whether the request names an earlier response, which the gateway resolves before sending."""
    return any(isinstance(part, v.PreviousResponseRef) for message in request.messages for part in message.parts)


def system_texts(request: v.Request) -> list[str]:
    """The system texts within user messages."""
    tag = "<system-reminder>\n"
    return [word.removeprefix(tag).removesuffix("\n</system-reminder>") for word in words(request) if tag in word]


def normalized(value: Any) -> Any:
    """JSON in a form in which equivalent values are equal."""
    match value:
        case {"type": "text" | "input_text", "text": text, **rest} if not rest:
            return text
        case {"role": role, "content": content, **rest} if not rest:
            return {"role": role, "content": _only(normalized(content))}
        case dict():
            kept = {k: normalized(x) for k, x in value.items() if k not in CLIENT_ONLY and (k, x) not in DEFAULTS}
            kept = {k: _only(x) if k in ("content", "input") else x for k, x in kept.items() if x is not None}
            return kept
        case list():
            return [normalized(each) for each in value]
    return value


def _only(value: Any) -> Any:
    """Replaces a list of one text, or of one user message, by that text."""
    match value:
        case [str() as text] | [{"role": "user", "content": str() as text}]:
            return text
    return value


def test_recordings_contain_only_known_texts(subtests: pytest.Subtests) -> None:
    check_each(subtests, [name for name in RECORDED if not name.startswith(("node", "python"))], check_texts)


def check_texts(name: str) -> None:
    others = []

    def look(key: str, text: str) -> str:
        if text != client_recordings.filler(text) and not client_recordings.is_ours(text, key, OURS):
            others.append(text)
        return text

    client_recordings.each_string(json.loads(RECORDED[name].body), "", look)
    assert others == []
    assert b"/home/" not in RECORDED[name].body
