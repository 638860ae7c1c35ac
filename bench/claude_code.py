"""The real Claude Code on a local model: a prompt for which it runs its Read tool and gets the result.

    python -m bench.claude_code [--model NAME] [--record]      the model runs: half a minute a turn
    python -m bench.claude_code --replay                       the model's recorded texts instead

It runs in a folder with one file, with its own home, keys and, if the system allows, network. The exit status is 0 if
it called the tool, got the file's text and ended without an error. `--record` stores its requests, without the
vendor's prose, and the model's texts in tests/data/backends/claude_code/; the folder's name is replaced by FOLDER.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, cast

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from bench import offline
from bench.forty import RecordingEngine
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.catalog import models
from dragoman.config.server import ServerConfig
from dragoman.core.backend import Backend
from dragoman.gateway.gateway import Gateway
from dragoman.server import run as server
from dragoman.server.app import App
from dragoman.server.client_watch import TAKE_BODY
from support.recorded_backend import RecordedBackend

DATA = Path(__file__).parent.parent / "tests" / "data" / "backends" / "claude_code"
MODEL = "qwen2.5-coder-1.5b"
PROMPT = "Read the file notes.txt and say what it holds"
NOTES = "Meet Ada at the lighthouse on Tuesday."
FOLDER = "FOLDER"
MESSAGES = "/v1/messages"
OMITTED = "(left out)"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}
FLAGS = ("--bare", "--tools", "Read", "--allowedTools", "Read")
DEADLINE_S = 600.0
RunSession: TypeAlias = Callable[[str, bool, bool], int]
"""Runs a session with a model; whether it is recorded, whether a recording is replayed; returns the exit status."""


@dataclass
class Run:
    """Claude Code's report of its run."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    errors: str = ""
    """Lines that are not JSON: error messages."""

    def parts(self, role: str, kind: str) -> list[dict[str, Any]]:
        """Returns the content blocks of one role and type."""
        contents = (line["message"]["content"] for line in self.lines if line["type"] == role)
        return [part for parts in contents if isinstance(parts, list) for part in parts if part["type"] == kind]

    def end(self) -> dict[str, Any]:
        """Returns the last line of type `result`; empty if there is none."""
        return next((line for line in reversed(self.lines) if line["type"] == "result"), {})

    def failures(self) -> list[str]:
        """Returns which requirements the run did not meet; empty: it succeeded."""
        called = {p["id"] for p in self.parts("assistant", "tool_use") if p["name"] == "Read"}
        results = [p for p in self.parts("user", "tool_result") if p["tool_use_id"] in called]
        is_read = any(NOTES in json.dumps(p["content"]) and not p.get("is_error") for p in results)
        failures = [] if called else ["Read was not called"]
        failures += [] if is_read else ["no result of Read contains the file's text"]
        failures += (
            []
            if self.end().get("is_error") is False
            else [f"expected an end without an error, got {self.end() or self.errors}"]
        )
        return failures + ([] if self.end().get("result") else ["there is no answer"])

    def transcript(self, prompt: str = PROMPT) -> str:
        """Returns the run as readable text."""
        rows = [("user", prompt)]
        for line in self.lines:
            content = line["message"]["content"] if line["type"] in ("assistant", "user") else []
            rows += [_transcript_row(part) for part in content if isinstance(part, dict)]
        end = self.end()
        usage = end.get("usage", {})
        cost = f"{end.get('num_turns')} turns, {end.get('duration_ms', 0) / 1000:.1f} s"
        tokens = f"{usage.get('input_tokens')} tokens read, {usage.get('output_tokens')} written"
        return "\n".join([*(f"{who:12}{what}" for who, what in rows), f"{cost}, {tokens}"])


def _transcript_row(part: Mapping[str, Any]) -> tuple[str, str]:
    match part["type"]:
        case "tool_use":
            return "tool_use", f"{part['name']} {json.dumps(part['input'])}"
        case "tool_result":
            return "tool_result", " ".join(str(part["content"]).split())
        case kind:
            return kind, str(part.get("text", ""))


class RequestRecorder:
    """The gateway's application, which stores its requests."""

    def __init__(self, app: App, engine: RecordingEngine | None) -> None:
        self._app = app
        self._engine = engine
        self.requests: list[dict[str, Any]] = []
        self.texts: list[list[str]] = []
        """The model's texts for each request, several if it was re-asked."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serves one ASGI scope; requests for other purposes than a message are not recorded."""
        if scope.get("method") != "POST" or scope["path"] != MESSAGES:
            return await self._app(scope, receive, send)
        extensions = {name: value for name, value in scope.get("extensions", {}).items() if name != TAKE_BODY}
        scope["extensions"] = extensions  # so that the body arrives by `receive`
        body, runs_before = bytearray(), len(self._engine.runs) if self._engine else 0

        async def receive_and_copy() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await self._app(scope, receive_and_copy, send)
        headers = {
            k.decode(): v.decode() for k, v in scope["headers"] if k in (b"anthropic-version", b"anthropic-beta")
        }
        query = scope["query_string"].decode()
        self.requests.append({"path": scope["path"], "query": query, "headers": headers, "body": json.loads(body)})
        self.texts.append([run.text for run in self._engine.runs[runs_before:]] if self._engine else [])


def ask(url: str, model: str, folder: Path, prompt: str = PROMPT, flags: Sequence[str] = FLAGS) -> Run:
    """Runs Claude Code in the folder until it ends.

    Args:
        url: URL of the gateway.
        model: model that it requests.
        folder: its working folder.
        prompt: what it is asked.
        flags: its tools and other options.
    """
    with tempfile.TemporaryDirectory() as home:
        env = offline.environment(Path(home), ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none", **QUIET)
        output = ("--output-format", "stream-json", "--verbose")
        command = [str(offline.claude_code()), "-p", prompt, "--model", model, *flags, *output]
        result = subprocess.run(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S
        )
    run = Run(errors=result.stderr)
    for line in result.stdout.splitlines():
        if line.startswith("{"):
            run.lines.append(json.loads(line))
        else:
            run.errors += line + "\n"
    return run


def serve(
    gateway: Gateway, engine: RecordingEngine | None, run_agent: Callable[[str], Run]
) -> tuple[Run, RequestRecorder]:
    """Runs a gateway, and Claude Code as its client; returns when Claude Code has ended.

    Args:
        gateway: the gateway.
        engine: the engine of its backend; None: the texts are not recorded.
        run_agent: runs Claude Code with the URL of the gateway.
    """
    runs: list[Run] = []
    recorder = RequestRecorder(App(gateway, config := ServerConfig(port=0)), engine)

    def run_client(url: str) -> None:
        try:
            runs.append(run_agent(url))
        except (OSError, subprocess.SubprocessError) as e:
            runs.append(Run(errors=str(e)))
        os.kill(os.getpid(), signal.SIGTERM)  # ends the gateway gracefully

    server.run(gateway, config, lambda url: threading.Thread(target=run_client, args=(url,)).start(), app=recorder)
    return runs[0], recorder


def without_prose(value: Any) -> Any:
    """Returns a request of Claude Code with the vendor's texts replaced."""
    match value:
        case {"type": "tool_result"}:
            return value
        case dict():
            omitted_fields = {"description", "user_id", "system"} | (
                {"text"} if PROMPT not in str(value.get("text")) else set()
            )
            return {
                k: OMITTED if k in omitted_fields and isinstance(v, str) else without_prose(v) for k, v in value.items()
            }
        case list():
            return [without_prose(each) for each in value]
        case str() if len(value) > 200:
            return OMITTED
    return value


def recording_head(run: Run, model: str) -> dict[str, str]:
    """Returns the first line of a recording: how, when and of what it was made."""
    return {
        "how": "make claude ARGS=--record",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "client": f"Claude Code {next(x for x in run.lines if x.get('subtype') == 'init')['claude_code_version']}",
        "model": model,
        "format": models.get(model).format,
        "weights_sha256": models.get(model).sha256,
        "engine": f"xllamacpp {version('xllamacpp')}",
    }


def write_recording(run: Run, recorder: RequestRecorder, model: str, folder: Path) -> None:
    """Writes the recording.

    Args:
        run: Claude Code's output.
        recorder: requests and the model's texts.
        model: name of the model.
        folder: folder whose name is replaced by `FOLDER`.
    """
    head = recording_head(run, model)
    questions = [PROMPT, NOTES]
    answers = [
        {"asked": question, "text": texts[-1], "earlier_tries": texts[:-1]}
        for question, texts in zip(questions, recorder.texts, strict=True)
    ]
    DATA.mkdir(parents=True, exist_ok=True)
    for name, lines in (
        ("recording.jsonl", [head, *answers]),
        ("requests.jsonl", [head, *map(without_prose, recorder.requests)]),
    ):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (DATA / name).write_text(text.replace(str(folder), FOLDER))


def recorded_backend(folder: Path) -> RecordedBackend:
    """Returns the model's recorded texts, for a file in this folder."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "recording.jsonl"
        path.write_text((DATA / "recording.jsonl").read_text().replace(FOLDER, str(folder)))
        return RecordedBackend.of(path)


def recording_backend(model: str) -> tuple[EmbeddedModel, RecordingEngine]:
    """Returns the embedded model, and its engine, which records."""
    embedded = EmbeddedModel.from_config(
        EmbeddedConfig(model=model, prefix_cache_mb=0), weights.find_weights(model), _say
    )
    engine = RecordingEngine(embedded.engine)
    embedded.engine = cast(LlamaProcess, engine)
    return embedded, engine


def run_session(model: str, record: bool, replay: bool) -> int:
    """Runs it once; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="notes-") as name:
        folder = Path(name).resolve()
        (folder / "notes.txt").write_text(NOTES + "\n")
        backend: Backend
        engine = None
        if replay:
            backend = recorded_backend(folder)
        else:
            backend, engine = recording_backend(model)
        run, recorder = serve(Gateway([backend]), engine, lambda url: ask(url, model, folder))
        print(run.transcript().replace(str(folder), FOLDER))
        for failure in (failures := run.failures()):
            print(f"failed: {failure}")
        if record and not failures:
            write_recording(run, recorder, model, folder)
    return 1 if failures else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(module: str = "bench.claude_code", doc: str | None = __doc__, run: RunSession = run_session) -> int:
    """Runs the command, in a separate network if possible.

    Args:
        module: the module that is the command.
        doc: its description.
        run: runs the session.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    parser.add_argument("--model", default=MODEL, help=f"a known model (default: {MODEL})")
    parser.add_argument("--record", action="store_true", help="store the exchange for the test")
    parser.add_argument("--replay", action="store_true", help="use the recording instead of the model")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.alone and (prefix := offline.separate_network()):
        command = [*prefix, sys.executable, "-m", module, *sys.argv[1:], "--alone"]
        return subprocess.run(command).returncode
    if args.alone:
        offline.loopback_up()
    return run(args.model, args.record, args.replay)


if __name__ == "__main__":
    sys.exit(main())
