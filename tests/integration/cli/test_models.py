"""`dragoman models`: models of all origins, a real gateway with the real engine, and questions at a terminal."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.terminal import Terminal

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import describe
from dragoman.backends.embedded.local.measurements import ModelMeasurement, load_measurement, store_measurement
from dragoman.backends.embedded.local.memory import MB, PROCESS_BYTES
from dragoman.backends.embedded.local.model_facts import find_local_models
from dragoman.backends.embedded.weights import checksums
from dragoman.cli.models import measure
from dragoman.cli.models.loaded import format_states
from dragoman.cli.models.small_check import TASKS, Task, is_right
from dragoman.core.messages import ToolCall
from support.base_environment import dragoman
from support.gateway import MODEL, SMALL, Gateway, command, environment, run, running
from support.gguf_files import WHOLE, gguf, number, text
from support.ports import free_port

TEMPLATE = "{% for m in messages %}[INST]{{ m.content }}[/INST][TOOL_CALLS]{% endfor %}"
FILE = gguf(WHOLE | {"general.license": text("mit"), "general.file_type": number("u32", 15)})
PROJECTOR = gguf(
    {
        "general.architecture": text("clip"),
        "general.type": text("mmproj"),
        "clip.has_vision_encoder": number("bool", True),
    }
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a model of each origin."""
    files = {
        "dragoman/weights/qwen3-4b.gguf": FILE,
        "dragoman/weights/hf--owner--repo--m-Q4_0.gguf": FILE + b".",
        "dragoman/weights/hf--owner--repo--m-Q4_0.mmproj.gguf": PROJECTOR,
        "own/sub/mine.gguf": FILE + b"..",
        ".ollama/models/blobs/sha256-aa": FILE + b"...",
        ".lmstudio/models/pub/repo/studio.gguf": FILE + b"....",
        ".cache/huggingface/hub/models--o--r/snapshots/c0/hub-Q8_0.gguf": FILE + b".....",
        ".ollama/models/manifests/registry.ollama.ai/library/tiny/latest": json.dumps(
            {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"}]}
        ).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def variables(home: Path, **more: str) -> dict[str, str]:
    return {
        "DRAGOMAN_HOME": str(home / "dragoman"),
        "DRAGOMAN_EMBEDDED_FOLDERS": str(home / "own"),
        "DRAGOMAN_SERVER_PORT": str(free_port()),
        **more,
    }


def models(home: Path, *args: str, **more: str) -> tuple[int, str, str]:
    done = run(home, "models", *args, **variables(home, **more))
    return done.returncode, done.stdout, done.stderr


def rows(home: Path, *args: str, **more: str) -> Any:
    status, out, err = models(home, *args, "--json", **more)
    assert (status, err) == (0, "")
    return json.loads(out)


# list and show


def test_list_has_models_of_all_origins(home: Path) -> None:
    found = {row["name"]: row for row in rows(home, "list")}
    assert {name: row["origin"] for name, row in found.items()} == {
        "qwen3-4b": "pulled",
        "hf--owner--repo--m-Q4_0": "pulled",
        "mine": "folder",
        "tiny:latest": "ollama",
        "studio": "lmstudio",
        "hub-Q8_0": "huggingface",
    }
    assert [name for name, row in found.items() if row["vision"]] == ["hf--owner--repo--m-Q4_0"]
    assert found["mine"]["context_window"] == found["mine"]["trained_context"] == 4096
    assert found["tiny:latest"]["aliases"] == ["tiny"]
    assert {row["state"] for row in found.values()} == {None}
    assert rows(home) == rows(home, "list")


def test_list_is_a_table_without_state_if_no_gateway_runs(home: Path) -> None:
    status, out, _ = models(home)
    head, *lines = out.splitlines()
    assert status == 0
    assert head.split("  ")[0] == "NAME"
    assert head.split()[1:] == ["SIZE", "ORIGIN", "CONTEXT", "CALL", "FORMAT", "VISION"]
    assert [line.split()[0] for line in lines] == [
        "qwen3-4b",
        "hf--owner--repo--m-Q4_0",
        "mine",
        "tiny:latest",
        "studio",
        "hub-Q8_0",
    ]


def test_list_without_models_says_how_to_get_one(tmp_path: Path) -> None:
    status, out, err = models(tmp_path)
    assert (status, out, err) == (0, "", "no model is on this machine; to download one: dragoman pull\n")


def test_discovery_can_be_turned_off(home: Path) -> None:
    found = rows(home, DRAGOMAN_EMBEDDED_DISCOVER="false", DRAGOMAN_EMBEDDED_FOLDERS="absent")
    assert {row["origin"] for row in found} == {"pulled"}


def test_call_formats_are_found_once(home: Path) -> None:
    rows(home)
    cache = home / "dragoman" / "model-facts.json"
    before = cache.stat().st_mtime_ns
    rows(home)
    assert cache.stat().st_mtime_ns == before
    (home / "own/sub/mine.gguf").write_bytes(gguf(WHOLE | {"tokenizer.chat_template": text(TEMPLATE)}))
    assert next(row for row in rows(home) if row["name"] == "mine")["call_format"] != "hermes"
    cache.write_bytes(b"{")
    assert rows(home)


def test_show_describes_model(home: Path) -> None:
    shown = rows(home, "show", "TINY")
    assert shown["name"] == "tiny:latest"
    assert shown["architecture"] == "llama"
    assert shown["quantization"] == "Q4_K_M"
    assert shown["licence"] == "mit"
    assert shown["template"] is True
    assert shown["call_format"] == "hermes"
    assert shown["call_format_found_by"] == "nothing"
    assert shown["memory_mb"] == PROCESS_BYTES // MB
    assert shown["measured"] is None
    status, out, _ = models(home, "show", "tiny")
    assert status == 0
    assert "  call format   hermes, found by: nothing\n" in out
    assert "  measured      not yet; run: dragoman models show tiny:latest --measure\n" in out
    status, out, _ = models(home, "show", "qwen3-4b")
    assert "found by: catalogue" in out
    assert "Apache-2.0" in out


@pytest.mark.parametrize("command", ["show", "rm"])
def test_unknown_model_is_rejected_with_suggestion(command: str, home: Path) -> None:
    status, out, err = models(home, command, "studdio")
    assert (status, out) == (2, "")
    assert "expected a model of this machine, got 'studdio'; did you mean 'studio'" in err


def test_base_install_lists_and_shows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**environment(home), **variables(home)}.items():
        monkeypatch.setenv(name, value)
    done = dragoman("models", "list", "--json")
    assert len(json.loads(done.stdout)) == 6, done.stderr
    assert dragoman("models", "show", "mine").returncode == 0
    done = dragoman("models", "ps")
    assert (done.returncode, "asking a gateway needs more than is installed" in done.stderr) == (2, True)
    done = dragoman("models", "show", "mine", "--measure")
    assert (done.returncode, "measuring needs more than is installed" in done.stderr) == (2, True)
    done = dragoman("models", "rm", "qwen3-4b", "--yes")
    assert done.returncode == 0, done.stderr
    assert not (home / "dragoman/weights/qwen3-4b.gguf").exists()


# rm


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("tiny", "belongs to Ollama; to delete it: ollama rm tiny:latest"),
        ("studio", "belongs to LM Studio, which deletes it in its list of models"),
        ("hub-Q8_0", "hf cache rm hf://models/o/r/hub-Q8_0.gguf"),
        ("mine", "was not downloaded by Dragoman; delete "),
    ],
)
def test_models_of_others_are_not_deleted(name: str, advice: str, home: Path) -> None:
    before = len(rows(home))
    status, out, err = models(home, "rm", name, "--yes")
    assert (status, out, advice in err) == (2, "", True), err
    assert len(rows(home)) == before


def test_everything_of_a_pulled_model_is_deleted(home: Path) -> None:
    folder = home / "dragoman/weights"
    name = "hf--owner--repo--m-Q4_0"
    checksums.keep(folder / f"{name}.gguf", "00" * 32)
    checksums.keep(folder / f"{name}.mmproj.gguf", "00" * 32)
    (folder / f"{name}.gguf.part").write_bytes(b"half")
    (folder / f".parts/{name}").mkdir(parents=True)
    (folder / f".parts/{name}/hub-00").write_bytes(b"half")
    (folder / f".parts/{name}.lock").touch()
    (folder / f"{name}-2.gguf").write_bytes(FILE)
    found = json.loads(models(home, "rm", "hf:owner/repo/m-Q4_0.gguf", "--yes", "--json")[1])
    assert len(found["deleted"]) == 7
    assert sorted(file.name for file in folder.glob("*")) == [".parts", f"{name}-2.gguf", "qwen3-4b.gguf"]
    assert list((folder / ".parts").iterdir()) == []


def test_all_parts_and_interrupted_downloads_are_deleted(home: Path) -> None:
    folder = home / "dragoman/weights"
    for part in (1, 2):
        (folder / f"hf--o--r--big-0000{part}-of-00002.gguf").write_bytes(FILE)
    assert models(home, "rm", "hf:o/r/big-00001-of-00002.gguf", "-y")[0] == 0
    (folder / ".parts/smollm2-135m").mkdir(parents=True)
    (folder / ".parts/smollm2-135m/hub-00").write_bytes(b"half")
    status, out, _ = models(home, "rm", "smollm2", "-y")
    assert (status, out) == (0, "deleted smollm2, 0.0 MB\n")
    assert [row["name"] for row in rows(home) if row["origin"] == "pulled"] == ["qwen3-4b", "hf--owner--repo--m-Q4_0"]
    assert list((folder / ".parts").iterdir()) == []


def test_rm_without_terminal_needs_yes(home: Path) -> None:
    status, out, err = models(home, "rm", "qwen3-4b")
    assert (status, out) == (2, "")
    assert "add --yes, as there is no terminal to ask at" in err


@pytest.mark.parametrize(("answer", "exists"), [("n", True), ("", True), ("y", False)])
def test_rm_asks_at_the_terminal(answer: str, exists: bool, home: Path) -> None:
    env = environment(home) | variables(home)
    with Terminal(command("models", "rm", "qwen3-4b"), env, home) as terminal:
        terminal.wait_for("delete qwen3-4b (0.0 MB, in ")
        terminal.type(f"{answer}\r")
        terminal.wait_for("nothing was deleted" if exists else "deleted qwen3-4b, 0.0 MB")
        assert terminal.wait_end() == 0
    assert (home / "dragoman/weights/qwen3-4b.gguf").exists() == exists


def test_rm_names_the_copy_in_the_hub_cache(home: Path) -> None:
    cached = home / ".cache/huggingface/hub/models--o--r/snapshots/c0/hub-Q8_0.gguf"
    os.link(cached, home / "dragoman/weights/hf--o--r--hub-Q8_0.gguf")
    status, _, err = models(home, "rm", "hf--o--r--hub-Q8_0", "-y")
    assert status == 0
    assert "to delete it too: hf cache rm hf://models/o/r/hub-Q8_0.gguf" in err


# ps and stop


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with the real engine, and a weights folder of its own."""
    folder = tmp_path / "dragoman/weights"
    folder.mkdir(parents=True)
    real = weights.find_weights(MODEL)
    (folder / f"{MODEL}.gguf").symlink_to(real)
    (folder / "hf--o--r--copy.gguf").write_bytes(real.read_bytes())
    own = {"home": str(tmp_path / "dragoman"), "server.api_keys": "secret", "embedded.discover": "false"}
    with running(tmp_path, settings=own) as started:
        yield started


@pytest.mark.model
def test_ps_stop_and_rm_use_the_running_gateway(gateway: Gateway, tmp_path: Path) -> None:
    more = {
        "DRAGOMAN_SERVER_PORT": gateway.url.rpartition(":")[2],
        "DRAGOMAN_SERVER_API_KEYS": "secret",
        "DRAGOMAN_EMBEDDED_DISCOVER": "false",
        "DRAGOMAN_EMBEDDED_FOLDERS": "absent",
    }
    status, out, _ = models(tmp_path, "ps", **more)
    assert status == 0
    head, line = out.splitlines()
    assert head.split() == ["NAME", "STATE", "MEMORY", "ACTIVE", "WAITING", "EXPIRES", "RESTARTS"]
    assert line.split()[:2] == [MODEL, "ready"]
    assert line.split()[4:] == ["0", "0", "never", "0"]
    body = {"model": "hf--o--r--copy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    assert gateway.post("/v1/chat/completions", body, authorization="Bearer secret").status_code == 200
    states = {row["name"]: row["state"] for row in rows(tmp_path, "list", **more)}
    assert states == {MODEL: "ready", "hf--o--r--copy": "ready"}
    (copy,) = (row for row in rows(tmp_path, "ps", "--gateway", f"{gateway.url}/v1/", **more) if row["name"] != MODEL)
    assert 0 < copy["expires_s"] <= 300

    assert models(tmp_path, "rm", "hf--o--r--copy", "--yes", **more)[0] == 0
    assert [row["name"] for row in rows(tmp_path, "ps", **more)] == [MODEL], "it was unloaded first"
    assert models(tmp_path, "stop", "smollm2", **more)[:2] == (0, "unloaded smollm2\n")
    status, out, err = models(tmp_path, "ps", **more)
    assert (status, out, "has not loaded a model" in err) == (0, "", True)
    status, _, err = models(tmp_path, "stop", MODEL, **more)
    assert (status, "is not loaded" in err) == (2, True), err
    status, _, err = models(tmp_path, "stop", "absent", **more)
    assert (status, "absent" in err) == (2, True), err
    more["DRAGOMAN_SERVER_API_KEYS"] = "another-key"
    status, _, err = models(tmp_path, "ps", **more)
    assert (status, "reports its models for admin keys only: set DRAGOMAN_API_KEY" in err) == (2, True), err


@pytest.mark.parametrize("args", [("ps",), ("stop", "m"), ("list", "--gateway")])
def test_missing_gateway_is_reported(args: tuple[str, ...], home: Path) -> None:
    url = f"http://127.0.0.1:{free_port()!s}"
    status, _, err = models(home, *args, *((url,) if args[-1] == "--gateway" else ()))
    assert status == 1
    assert "no gateway answers at http://127.0.0.1:" in err


def test_ps_with_any_free_port_needs_gateway_option(home: Path) -> None:
    status, _, err = models(home, "ps", DRAGOMAN_SERVER_PORT="0")
    assert (status, "name it: --gateway URL" in err) == (2, True)


def test_table_of_states() -> None:
    states: dict[str, dict[str, Any]] = {
        "a": {"state": "ready", "memory_mb": 776, "active": 0, "waiting": 0, "expires_s": 290, "restarts": 1},
        "b": {"state": "ready", "memory_mb": 1, "active": 2, "waiting": 3, "expires_s": None, "restarts": 0},
        "c": {"state": "waiting", "memory_mb": 0, "active": 0, "waiting": 1, "expires_s": None, "restarts": 0},
        "d": {"state": "ready", "memory_mb": 0, "active": 0, "waiting": 0, "expires_s": 7, "restarts": 0},
    }
    lines = [line.split("  ") for line in format_states(states).splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert [line[5] for line in cells] == ["EXPIRES", "5 min", "-", "-", "7 s"]
    states["a"]["prefixes"] = {"files": 2, "mb": 31, "saved": 0}
    states["b"]["prefixes"] = {"files": 0, "mb": 0, "saved": 0}
    last = [line.rpartition("  ")[2].strip() for line in format_states(states).splitlines()]
    assert last == ["PREFIXES", "2 (31 MB)", "-", "-", "-"]


# Measuring


@pytest.mark.model
def test_measurement_is_stored_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dragoman.cli import main

    (tmp_path / "dragoman/weights").mkdir(parents=True)
    (tmp_path / f"dragoman/weights/{MODEL}.gguf").symlink_to(weights.find_weights(MODEL))
    settings = {"DRAGOMAN_" + key.replace(".", "_").upper(): str(value) for key, value in SMALL.items()}
    for name, value in {**variables(tmp_path), **settings, "DRAGOMAN_EMBEDDED_DISCOVER": "false"}.items():
        monkeypatch.setenv(name, value)
    assert len(TASKS) == describe.TASKS
    monkeypatch.setattr(measure, "TASKS", (TASKS[0], TASKS[-1]))
    monkeypatch.setattr(describe, "TASKS", 2)
    assert main(["models", "show", MODEL, "--measure", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["measured"]
    assert shown["tasks"] == 2
    assert shown["threads"] == 1
    assert min(shown[key] for key in ("prompt_tokens_per_s", "output_tokens_per_s", "load_s")) > 0
    assert main(["models", "show", MODEL]) == 0
    assert f"measured      {shown['date']}, 1 thread, loaded in " in capsys.readouterr().out


def test_measurement_belongs_to_one_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(home / "dragoman"))
    model = find_local_models(EmbeddedConfig(discover=False)).models["qwen3-4b"]
    assert load_measurement(model) is None
    store_measurement(model, result := ModelMeasurement("2026-11-26", 1.0, 2.0, 3.0, 4, 5, 6))
    assert load_measurement(model) == result
    model.path.write_bytes(FILE + b"changed")
    assert load_measurement(model) is None


@pytest.mark.parametrize(
    ("task", "calls", "right"),
    [
        (TASKS[0], [("get_weather", '{"city": "Oslo, Norway"}')], True),
        (TASKS[0], [("get_weather", '{"city": "Bergen"}')], False),
        (TASKS[0], [("read_file", '{"path": "Oslo"}')], False),
        (TASKS[0], [("get_weather", "[1")], False),
        (TASKS[0], [], False),
        (TASKS[6], [("set_alarm", '{"hour": 6, "minute": 45}')], True),
        (TASKS[6], [("set_alarm", '{"hour": "6", "minute": 45}')], False),
        (Task("one?", "t", {"n": 1}), [("t", '{"n": true}')], False),
        (TASKS[-1], [], True),
        (TASKS[-1], [("run_command", "{}")], False),
    ],
)
def test_small_check(task: Task, calls: list[tuple[str, str]], right: bool) -> None:
    assert is_right(task, [ToolCall("", name, arguments) for name, arguments in calls]) is right
