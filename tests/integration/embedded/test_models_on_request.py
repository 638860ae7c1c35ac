"""Three models in one gateway, with memory for two: loaded for a request, unloaded for another model or when idle."""

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import psutil
import pytest

from dragoman.backends.embedded import weights
from support.gateway import CHAT, MESSAGES, MODEL, Gateway, ask, exists, running, until
from support.small_models import write_quantized_model
from support.workers import processes_of

pytestmark = pytest.mark.model

TWIN, OTHER = "twin", "other"
MODELS = (MODEL, TWIN, OTHER)
MEMORY_MB = 640
"""Enough for two of them: each needs 240 to 340 MB with the tests' context window."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small model under another name, and in another quantization."""
    folder = tmp_path_factory.mktemp("models")
    link(weights.find_weights(MODEL), folder / f"{TWIN}.gguf")
    write_quantized_model(folder / f"{OTHER}.gguf", weights.find_weights(MODEL))
    return folder


def link(source: Path, target: Path) -> None:
    """Makes a second file of the same content, without its bytes where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def settings(folder: Path, **more: object) -> dict[str, object]:
    own = {"folders": str(folder), "memory_mb": MEMORY_MB, "max_concurrency": 1, "max_queue": 100}
    return {f"embedded.{name}": value for name, value in (own | more).items()}


@pytest.fixture
def gateway(folder: Path, tmp_path: Path) -> Iterator[Gateway]:
    with running(tmp_path, settings=settings(folder)) as gateway:
        yield gateway


def models_of(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """The states of the loaded models."""
    models: dict[str, dict[str, Any]] = gateway.state()["models"]
    return models


def say(gateway: Gateway, model: str, **more: Any) -> httpx2.Response:
    return gateway.post(CHAT, ask(CHAT, "Say hello.", model=model, max_tokens=4, **more))


def served(gateway: Gateway) -> set[str]:
    with gateway.client() as client:
        return {model["id"] for model in client.get("/v1/models").json()["data"]}


def engines_of(gateway: Gateway) -> dict[str, int]:
    """Process ids of the engines, by the name of the file that each has mapped."""
    return {
        Path(mapped.path).stem: pid
        for pid in processes_of(gateway, "llama_worker")
        for mapped in psutil.Process(pid).memory_maps()
        if mapped.path.endswith(".gguf")
    }


@pytest.mark.parametrize("requests", [12, pytest.param(200, marks=pytest.mark.every)])
def test_mixed_requests_of_three_models_are_all_answered(requests: int, gateway: Gateway) -> None:
    """The bound of the memory holds at every look, and what is told of the models is true."""
    chance, looks, ended = random.Random(7), list[dict[str, dict[str, Any]]](), Event()
    asked = [chance.choice(MODELS) for _ in range(requests)]

    def look() -> None:
        while not ended.wait(0.05):
            looks.append(models_of(gateway))

    with ThreadPoolExecutor(9) as threads:
        looking = threads.submit(look)
        answers = list(threads.map(lambda model: say(gateway, model, stream=chance.random() < 0.5), asked))
        ended.set()
        looking.result()
    assert Counter(answer.status_code for answer in answers) == {200: len(asked)}
    for model, answer in zip(asked, answers, strict=True):
        lines = answer.text.removeprefix("data: ").splitlines()
        text = next(line for line in lines if line and not line.startswith(":"))
        assert json.loads(text.removeprefix("data: "))["model"] == model
    assert {name for states in looks for name in states} == set(MODELS)
    assert max(sum(state["memory_mb"] for state in states.values()) for states in looks) <= MEMORY_MB
    assert {state["state"] for states in looks for state in states.values()} <= {
        "loading", "ready", "unloading", "waiting"
    }  # fmt: skip
    assert all(state["restarts"] == 0 for states in looks for state in states.values())
    gateway.idle()
    ready = {name for name, state in models_of(gateway).items() if state["ready"]}
    assert len(ready) == 2
    assert set(engines_of(gateway)) == ready


def test_killed_engine_does_not_affect_others(gateway: Gateway) -> None:
    assert say(gateway, TWIN).status_code == 200
    body = ask(CHAT, "Write a list of 500 animals.", model=TWIN, max_tokens=400, stream=True)
    with gateway.client() as client, client.stream("POST", CHAT, json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        os.kill(engines_of(gateway)[MODEL], signal.SIGKILL)
        assert any("[DONE]" in line for line in lines)
    assert models_of(gateway)[TWIN]["restarts"] == 0
    assert say(gateway, MODEL).status_code == 200
    assert models_of(gateway)[MODEL]["restarts"] == 1


def test_model_is_loaded_and_unloaded_by_clients(gateway: Gateway) -> None:
    assert served(gateway) >= set(MODELS)
    assert list(models_of(gateway)) == [MODEL]
    assert gateway.post("/models/load", {"model": TWIN}).json() == {"success": True}
    assert models_of(gateway)[TWIN]["state"] == "ready"
    assert set(engines_of(gateway)) == {MODEL, TWIN}
    again = gateway.post("/models/load", {"model": TWIN})
    assert (again.status_code, again.json()["error"]["message"]) == (
        400,
        f"model '{TWIN}' is already loaded - at model",
    )
    assert gateway.post("/models/unload", {"model": TWIN}).json() == {"success": True}
    assert list(models_of(gateway)) == [MODEL]
    assert set(engines_of(gateway)) == {MODEL}
    again = gateway.post("/models/unload", {"model": TWIN})
    assert again.status_code == 400
    assert again.json()["error"]["message"] == f"model '{TWIN}' is not loaded - at model"
    assert gateway.post("/models/load", {"model": "absent"}).status_code == 404
    missing = gateway.post("/models/load", {})
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "model")


@pytest.mark.every
def test_busy_model_is_unloaded_after_its_response(gateway: Gateway) -> None:
    body = ask(CHAT, "Write a list of 500 animals.", model=TWIN, max_tokens=200, stream=True)
    with gateway.client() as client, client.stream("POST", CHAT, json=body) as stream:
        lines = stream.iter_lines()
        next(line for line in lines if line.startswith("data:"))
        assert gateway.post("/models/unload", {"model": TWIN}).status_code == 200
        assert any("[DONE]" in line for line in lines)
    until(lambda: TWIN not in models_of(gateway), "the end of the engine")


def test_stream_tells_what_request_waits_for(folder: Path, tmp_path: Path) -> None:
    own = settings(folder) | {"server.max_status_delay_s": 0.01, "server.keepalive_interval_s": 0.02}
    with running(tmp_path, settings=own) as gateway:
        body = ask(CHAT, "Say hello.", model=TWIN, max_tokens=4, stream=True)
        with gateway.client() as client, client.stream("POST", CHAT, json=body) as stream:
            text = "\n".join(stream.iter_lines())
        assert f"loading {TWIN}, " in text
        gateway.line(f"loading model {TWIN}, which needs about ")


def test_idle_model_is_unloaded(folder: Path, tmp_path: Path) -> None:
    with running(tmp_path, settings=settings(folder, keep_alive_s=0.2)) as gateway:
        assert say(gateway, TWIN).status_code == 200
        until(lambda: list(models_of(gateway)) == [MODEL], "the end of an idle model")
        assert gateway.line(f"unloading model {TWIN}")
        assert say(gateway, TWIN).status_code == 200


def test_pinned_model_stays(folder: Path, tmp_path: Path) -> None:
    more = {"pinned": TWIN, "keep_alive_s": 0}
    with running(tmp_path, settings=settings(folder, **more)) as gateway:
        assert models_of(gateway)[TWIN]["expires_s"] is None
        assert say(gateway, OTHER).status_code == 200  # the model of the settings goes for it
        assert models_of(gateway)[TWIN]["ready"]
        refused = gateway.post("/models/unload", {"model": TWIN})
        assert "is never unloaded: it is in embedded.pinned" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_too_large_model_is_rejected_with_what_fits(folder: Path, tmp_path: Path, path: str) -> None:
    with running(tmp_path, settings=settings(folder, memory_mb=270)) as gateway:
        answer = gateway.post(path, ask(path, "Say hello.", model=OTHER, max_tokens=4))
        assert answer.status_code == 400
        message = answer.json()["error"]["message"]
        assert message.startswith(f"model '{OTHER}' needs about ")
        assert "expected at most 270 MB for all models (setting embedded.memory_mb); these fit: " in message
        assert {MODEL, TWIN} <= set(message.partition("these fit: ")[2].partition(";")[0].split(", "))
        assert say(gateway, TWIN).status_code == 200


def test_new_file_is_served_without_restart(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with running(tmp_path, settings=settings(own)) as gateway:
        assert say(gateway, "later").status_code == 404
        link(folder / f"{TWIN}.gguf", own / "below" / "later.gguf")
        assert say(gateway, "later").status_code == 200
        (own / "damaged.gguf").write_bytes(b"GGUF" + bytes(20))
        assert served(gateway) == {MODEL, "later"}
        (own / "below" / "later.gguf").unlink()
        assert served(gateway) == {MODEL}


def test_alias_of_local_model_is_accepted(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "dragoman.toml"
    config.write_text(f'[model_aliases]\nfast = "{TWIN}"\n')
    with running(tmp_path, "--config", str(config), settings=settings(folder)) as gateway:
        answer = say(gateway, "fast")
        assert (answer.status_code, answer.json()["model"]) == (200, "fast")


def test_cancelled_request_stops_loading(gateway: Gateway) -> None:
    body = ask(CHAT, "Say hello.", model=OTHER, stream=True)
    with gateway.client() as client, client.stream("POST", CHAT, json=body) as stream:
        next(stream.iter_lines())
    until(lambda: not models_of(gateway).get(OTHER, {}).get("active"), "the end of the request")
    assert say(gateway, TWIN).status_code == 200


def test_engines_end_with_killed_gateway(folder: Path, tmp_path: Path) -> None:
    with running(tmp_path, settings=settings(folder)) as gateway:
        assert say(gateway, TWIN).status_code == 200
        engines = processes_of(gateway, "llama_worker")
        assert len(engines) == 2
        gateway.process.kill()
        until(lambda: not any(map(exists, engines)), "the end of the engines")


def test_other_programs_models_are_served(tmp_path: Path) -> None:
    """Those of Ollama, LM Studio and the Hugging Face cache, by the names that their programs know."""
    source = weights.find_weights(MODEL)
    ollama, lmstudio = tmp_path / ".ollama" / "models", tmp_path / ".lmstudio" / "models"
    link(source, ollama / "blobs" / "sha256-aa")
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa", "size": 1}]
    for tag in ("latest", "1b"):
        manifest = ollama / "manifests" / "registry.ollama.ai" / "library" / "tiny" / tag
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"layers": layers}))
    shutil.copyfile(source, tmp_path / "copy.gguf")
    link(tmp_path / "copy.gguf", lmstudio / "somebody" / "Small-GGUF" / "Small-Q4_1.gguf")
    (lmstudio / "somebody" / "Small-GGUF" / "mmproj-Small.gguf").write_bytes(b"damaged")
    hub = tmp_path / ".cache" / "huggingface" / "hub" / "models--somebody--Other"
    shutil.copyfile(source, tmp_path / "third.gguf")
    link(tmp_path / "third.gguf", hub / "blobs" / "bb")
    (hub / "snapshots" / "abc").mkdir(parents=True)
    (hub / "snapshots" / "abc" / "Other-Q4.gguf").symlink_to(Path("../../blobs/bb"))
    with running(tmp_path, settings=settings(tmp_path / "none")) as gateway:
        assert served(gateway) == {MODEL, "tiny:1b", "Small-Q4_1", "Other-Q4"}
        for name in ("tiny", "tiny:latest", "somebody/Small-GGUF/Small-Q4_1", "hf:somebody/Other/Other-Q4.gguf"):
            assert say(gateway, name).status_code == 200, name
    with running(tmp_path, settings=settings(tmp_path / "none", discover=False)) as gateway:
        assert served(gateway) == {MODEL}


def test_workers_share_models(folder: Path, tmp_path: Path) -> None:
    with (
        running(tmp_path, settings=settings(folder) | {"server.workers": 2}) as gateway,
        ThreadPoolExecutor(6) as threads,
    ):
        asked = [MODELS[n % 3] for n in range(24)]
        answers = list(threads.map(lambda model: say(gateway, model), asked))
        assert [(answer.status_code, answer.json()["model"]) for answer in answers] == [(200, name) for name in asked]
        assert len(processes_of(gateway, "llama_worker")) == 2
        gateway.post("/models/unload", {"model": next(iter(set(engines_of(gateway)) - {MODEL}))})
        until(lambda: len(processes_of(gateway, "llama_worker")) == 1, "the end of the engine")
        assert served(gateway) >= set(MODELS)


def test_other_programs_model_is_the_configured_one(tmp_path: Path) -> None:
    """`embedded.model` may name any model of this machine, which is then loaded at start."""
    ollama = tmp_path / ".ollama" / "models"
    link(weights.find_weights(MODEL), ollama / "blobs" / "sha256-aa")
    manifest = ollama / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa", "size": 1}]
    manifest.write_text(json.dumps({"layers": layers}))
    with running(tmp_path, "--model", "tiny", settings=settings(tmp_path / "none")) as gateway:
        assert list(models_of(gateway)) == ["tiny"]
        for name in ("tiny", "tiny:latest"):
            assert say(gateway, name).status_code == 200
