"""A capture that can be sent to others: the content of messages is replaced, and everything derived from it recomputed.

    body, model output  ─anonymizer→  the same structure  ─replay→  every other stage, computed again

So no stage contains what was said, and a parsing problem can still be reproduced; replaying both captures shows whether
it can. Names and schemas of tools, names of models, keywords of the APIs and the settings of the backend are kept.
"""

import io
import json
import re
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, get_args

import msgspec

from dragoman import dialects, formats
from dragoman.core.events import AnyEvent
from dragoman.core.messages import Tool
from dragoman.redaction.anonymize import Anonymizer, KeepRules, map_strings
from dragoman.server.capture.diff import join_events
from dragoman.server.capture.files import SUMMARY, TOOL_RUNS, Files, chunk_to_json, jsonl, rechunk
from dragoman.server.capture.load import LoadedCapture, output_from_json
from dragoman.server.capture.replay import Replay, is_continuation
from dragoman.server.capture.replay_backend import KINDS

_TEXT_EVENTS: Final = ("TextDelta", "ReasoningDelta")
_HEADERS: Final = (
    "accept",
    "content-type",
    "user-agent",
    "anthropic-version",
    "anthropic-beta",
    "x-dragoman-buffering",
    "x-dragoman-steps",
)
"""Headers that are kept: the client, and what it accepts."""
_UNSENT_FACTS: Final = ("upstream", "upstream_model", "failed_attempts", "upstream_request_id", "trace_id", "key")
"""Fields of the log line that name the servers and people of a network; no replay needs them."""
_WORD: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_ID: Final = re.compile(r"[\w.:|/+=-]{0,200}")
_FILE: Final = r"(?:[~.]{0,2}[/\\]|[A-Za-z]:[/\\]|file:|.*[/\\][^/\\]*\.(?:gguf|safetensors|bin)$)"
"""Pattern for the name of a model that is a path."""
_MODEL: Final = re.compile(rf"(?!{_FILE}).*")
_IDS: Final = (
    *("id", "call_id", "tool_call_id", "tool_use_id", "item_id", "response_id", "previous_response_id", "reply_id"),
    *("system_fingerprint", "is"),
)
_WORDY: Final = (
    *("role", "type", "object", "finish_reason", "stop_reason", "effort", "reasoning_effort", "mode", "tool_choice"),
    *("encoding", "kind", "dialect", "service_tier"),
)
_ONE_OF: Final = {
    "status": "queued|in_progress|completed|incomplete|failed|cancelled|searching|interpreting|generating|calling",
    "detail": "auto|low|high|original",
    "format": "text|json|json_object|json_schema|url|base64|wav|mp3|flac|opus|aac|pcm16|lark|regex",
    "event": "|".join(event.__name__ for event in get_args(AnyEvent)),
    "media_type": r"[a-z]+/[a-z0-9.+-]+",
}
_REQUEST_RULES: Final = KeepRules(
    kept_strings={
        **dict.fromkeys(_IDS, _ID),
        **dict.fromkeys(_WORDY, _WORD),
        **{name: re.compile(values) for name, values in _ONE_OF.items()},
        "model": _MODEL,
    },
    kept_containers=("tools", "functions", "tool_choice", "response_format", "output_config", "text"),
    replaced_members=(
        *("description", "title", "examples", "input_examples", "$comment", "instructions", "headers"),
        *("server_url", "server_description", "authorization", "user_location"),
    ),
    replaced_containers=(
        "input",
        "arguments",
        "args",
        "metadata",
        "client_metadata",
        "variables",
        "attributes",
        "headers",
    ),
    user_named=("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"),
)
"""What an API reads and no person wrote: identifiers and schemas."""
_OUTPUT_RULES: Final = _REQUEST_RULES._replace(kept_containers=())
"""The same for model output, which contains no schemas."""
_SCHEMA: Final = re.compile(rb'("parameters":\s*)("(?:[^"\\]|\\.)*")')
"""The schema of a tool in `values.json`."""
_LINES: Final = re.compile(r'^(?:data: ?)?\{"', re.MULTILINE)
"""The start of a line of a stream, or of a JSONL file."""
_PROTOCOL_WORDS: Final = (
    "true false null True False None name names arguments parameters function functions tool tools tool_call type id "
    "call calls input output result response assistant user system developer json xml data image png jpeg base64 http "
    "user_id"
)
"""Words that tool calls and their markup are made of."""


class BundleResult(NamedTuple):
    """A bundle that was written."""

    files: Files
    is_same_outcome: bool
    """Whether replaying the bundle gives the same outcome as replaying the capture."""
    outcome: tuple[str, ...]
    """The outcome of the capture, as text."""
    now: tuple[str, ...]
    """The outcome of the bundle, as text."""


async def anonymize(captured: LoadedCapture) -> BundleResult:
    """Returns the capture with all content replaced, and every stage recomputed from it.

    Raises: ConfigError: the capture cannot be replayed.
    """
    fill = Anonymizer(_names(captured), secrets.token_bytes(32))
    sources = {name: data for name, data in _source_files(captured, fill)}
    now = await Replay(LoadedCapture(captured.name, sources)).answered()
    before = read_outcome(LoadedCapture(captured.name, await Replay(captured).answered()))
    after = read_outcome(LoadedCapture(captured.name, now))
    return BundleResult({**now, **sources}, before == after, before, after)


def raw_copy(captured: LoadedCapture) -> Files:
    """Returns the capture with all content, but without the paths and headers of the machine."""
    files = {"request.json": _request(captured), SUMMARY: captured.files[SUMMARY]}
    about = {f"{n}/backend.json": _backend(captured, n, None) for n in range(1, captured.backend_call_count + 1)}
    return {**captured.files, **files, **about}


def zip_bundle(files: Files) -> bytes:
    """Returns the files as a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name in sorted(files):
            bundle.writestr(name, files[name])
    return out.getvalue()


def read_outcome(capture: LoadedCapture) -> tuple[str, ...]:
    """Returns what was read, without its text: the order of events, the tools, the warnings, and how it ended."""
    notes = []
    names = [f"{n}/events.jsonl" for n in range(1, capture.backend_call_count + 1)]
    for name in [*names, "events.jsonl"]:
        last = ""
        for event in join_events(capture.lines(name), rechunked=True):
            if event["event"] == last and last in _TEXT_EVENTS:
                continue  # only a notice came between: how long text is held back depends on its letters
            last = last if event["event"] == "Notice" else event["event"]
            values = [event.get(key, "") for key in ("name", "code", "reason")]
            notes.append(" ".join(filter(None, [event["event"], *values])))
    return tuple(notes)


def _source_files(captured: LoadedCapture, fill: Anonymizer) -> Iterator[tuple[str, bytes]]:
    """Yields the files that all others are derived from."""
    yield "request.json", _request(captured)
    yield "body", _json(captured.files.get("body", b""), fill)
    summary = captured.json(SUMMARY)
    summary["warnings"] = [{"code": each["code"]} for each in summary.get("warnings", ())]
    line = {name: fact for name, fact in summary.get("log", {}).items() if name not in _UNSENT_FACTS}
    if "error" in line:
        line["error"] = fill.anonymize(line["error"])
    if "model" in line:
        line["model"] = _model(line["model"], fill)
    if "log" in summary:
        summary["log"] = line
    yield SUMMARY, _pretty(summary)
    if TOOL_RUNS in captured.files:
        yield TOOL_RUNS, jsonl(_anonymized_run(line, fill) for line in captured.lines(TOOL_RUNS))
    for number in range(1, captured.backend_call_count + 1):
        yield f"{number}/backend.json", _backend(captured, number, fill)
        for count in range(1, captured.output_count(number) + 1):
            name = f"{number}/model-output-{count}.jsonl"
            yield name, jsonl(_anonymized_output(captured.model_output(number, count), fill))
        if is_continuation(captured) or b'"verbatim_text":' in captured.files.get(f"{number}/values.json", b""):
            yield f"{number}/values.json", _values(captured.files.get(f"{number}/values.json", b""), fill)
        if captured.json(f"{number}/backend.json").get("kind") not in KINDS:  # then these are the only known ones
            yield (
                f"{number}/events.jsonl",
                _json(captured.files.get(f"{number}/events.jsonl", b""), fill, _OUTPUT_RULES),
            )


def _anonymized_run(line: dict[str, Any], fill: Anonymizer) -> dict[str, Any]:
    """Replaces the content of a tool call that the gateway ran, and of its result."""
    result = line.get("result", {})
    hits = [{name: fill.anonymize(text) for name, text in hit.items()} for hit in result.get("hits", ())]
    arguments = map_strings(line.get("arguments", "{}"), fill.anonymize, _OUTPUT_RULES)
    return {**line, "arguments": arguments, "result": {**result, "text": fill.anonymize(result["text"]), "hits": hits}}


def _request(captured: LoadedCapture) -> bytes:
    request = captured.json("request.json")
    return _pretty({**request, "headers": {k: v for k, v in request.get("headers", {}).items() if k in _HEADERS}})


def _backend(captured: LoadedCapture, number: int, fill: Anonymizer | None) -> bytes:
    """Returns how the backend was called, without its address and its file paths."""
    about = captured.json(f"{number}/backend.json")
    vendors = {host for name in dialects.names() for host in dialects.get(name).vendor_hosts}
    if "url" in about and not any(host in about["url"] for host in vendors):
        about["url"] = "http://127.0.0.1"
    settings = about.get("settings", {})
    if "chat_template" in settings:
        settings["chat_template"] = ""
    if fill and "model" in about:
        about["model"] = _model(about["model"], fill)
    if fill and "error" in about:
        about["error"] = _error(about["error"], fill)
    return _pretty(about)


def _model(name: str, fill: Anonymizer) -> str:
    """Returns the last part of a path."""
    return name if _MODEL.fullmatch(name) else fill.anonymize(name)


def _error(error: dict[str, Any], fill: Anonymizer) -> dict[str, Any]:
    """Replaces the message of an error: it is a server's, and may quote anything."""
    return {k: fill.anonymize(v) if k in ("text", "message", "path", "model") else v for k, v in error.items()}


def _values(data: bytes, fill: Anonymizer) -> bytes:
    """Replaces the content of a parsed request; the schemas of its tools are JSON in strings."""

    def schema(match: re.Match[bytes]) -> bytes:
        tools_json = f'{{"tools": [{msgspec.json.decode(match[2], type=str)}]}}'
        anonymized = map_strings(tools_json, fill.anonymize, _REQUEST_RULES)
        return match[1] + msgspec.json.encode(anonymized[len('{"tools": [') : -len("]}")])

    return _json(_SCHEMA.sub(schema, data), fill)


def _json(data: bytes, fill: Anonymizer, rules: KeepRules = _REQUEST_RULES) -> bytes:
    """Replaces the content of JSON, of a stream or of lines of it; other data has no structure to keep."""
    text = data.decode("utf-8", "surrogateescape")
    structured = _LINES.search(text) or is_json(data)
    anonymized = map_strings(text, fill.anonymize, rules) if structured else fill.anonymize(text)
    return anonymized.encode("utf-8", "surrogateescape")


def is_json(data: bytes) -> bool:
    """Whether the data is one JSON document."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _anonymized_output(lines: list[dict[str, Any]], fill: Anonymizer) -> Iterator[dict[str, Any]]:
    """Replaces the content of model output, in pieces of the same sizes and times."""
    first, *rest = lines
    is_http = first["target"] != "completion"
    text_lines = [line for line in rest if "text" in line or "base64" in line]
    if is_http:
        data = [bytes(output_from_json(line)) for line in text_lines]  # type: ignore[arg-type]
        pieces = iter(rechunk(_json(b"".join(data), fill, _OUTPUT_RULES), map(len, data)))
        texts: Iterator[dict[str, Any]] = map(chunk_to_json, pieces)
    else:
        text = fill.anonymize("".join(line["text"] for line in text_lines))
        ends = list(_ends(len(line["text"]) for line in text_lines))
        texts = ({"text": text[a:b]} for a, b in ends)
    yield first
    for line in rest:
        if "error" in line:
            yield {"error": _error(line["error"], fill)}
        elif "text" in line or "base64" in line:
            yield {"ms": line["ms"], **next(texts)}
        else:
            yield line


def _ends(sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    at = 0
    for size in sizes:
        yield at, at + size
        at += size


def _names(captured: LoadedCapture) -> Iterator[str]:
    """Yields the texts that are kept: names of tools and of their arguments, and the markup of calls."""
    yield _PROTOCOL_WORDS
    yield from _files(captured)
    for format in formats.built_in():
        yield from format.markers
        yield from format.reasoning_tags
        yield from format.reasoning_tags.values()
    for number in range(1, captured.backend_call_count + 1):
        for tool in captured.json(f"{number}/values.json").get("tools", ()):
            yield tool.get("name", "")
            with suppress(msgspec.DecodeError, RecursionError):  # a schema that is not JSON names nothing
                yield from _schema_names(msgspec.json.decode(tool.get("parameters", Tool("").parameters)))
        for count in range(1, captured.output_count(number) + 1):
            yield from _sent_names(captured.files.get(f"{number}/sent-{count}.json", b""))


def _files(captured: LoadedCapture) -> Iterator[str]:
    """Yields the last parts of model names that are paths."""
    bodies = [
        captured.files.get("body", b""),
        *(captured.files.get(f"{n}/backend.json", b"") for n in range(1, captured.backend_call_count + 1)),
    ]
    for name in re.findall(r'"model":\s*"((?:[^"\\]|\\.)*)"', b"\n".join(bodies).decode("utf-8", "replace")):
        if not _MODEL.fullmatch(name):
            last = re.split(r"[/\\]", name)[-1]
            yield from (last, last[1:])  # after a backslash its first letter counts as escaped


class _Sent(msgspec.Struct):
    tools: Any = None
    names: dict[str, str] = {}


def _sent_names(sent_body: bytes) -> Iterator[str]:
    """Yields the names of the tools as they were sent to the model."""
    with suppress(msgspec.DecodeError, RecursionError):
        body = msgspec.json.decode(sent_body, type=_Sent)
        yield from body.names
        yield from re.findall(r'"name":"([^"]+)"', msgspec.json.encode(body.tools).decode())


def _schema_names(schema: object, member: str = "") -> Iterator[str]:
    """Yields the names of properties, and the constant values of a schema."""
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if member in ("properties", "patternProperties", "$defs", "definitions"):
                yield name
            yield from _schema_names(inner, name)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _schema_names(inner, member)
    elif isinstance(schema, str | int | float) and member in ("enum", "const", "default", "required", "type"):
        yield str(schema)


def _pretty(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
