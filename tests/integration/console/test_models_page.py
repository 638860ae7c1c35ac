"""Models and settings as the console's API answers with them; downloads in a real gateway process."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman import config as settings
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.model_facts import LocalModelFinder
from dragoman.console.upstreams.models import model_detail, models_view
from dragoman.console.upstreams.settings import list_settings
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway as InProcessGateway
from dragoman.server.reload.control import ConfigSource
from support.console import API, CHANGE, served_console
from support.gateway import Gateway, until
from support.gguf_files import WHOLE, gguf
from support.hub_server import HubServer, hub
from support.scripted_backend import Scripted, plain

FILE = gguf(WHOLE)
REPOSITORY = {"m-Q4_K_M.gguf": FILE + b"4" * 300_000}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with one model, and a folder with another one."""
    for name in ("dragoman/weights/qwen3-4b.gguf", "own/mine.gguf"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(FILE)
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "dragoman"))
    return tmp_path


def test_models_of_this_machine_of_upstreams_and_of_the_catalogue_are_listed(home: Path) -> None:
    config = EmbeddedConfig(folders=(str(home / "own"),), discover=False, pinned=("mine",), memory_mb=4000)
    finder = LocalModelFinder(config)
    view = models_view(InProcessGateway([Scripted(plain, ["far"])]), finder, [])
    assert [(model.name, model.origin, model.state, model.is_pinned) for model in view.local] == [
        ("qwen3-4b", "pulled", "", False),
        ("mine", "folder", "", True),
    ]
    assert all(model.memory_bytes > model.size_bytes > 0 for model in view.local)
    assert ("far", "scripted") in [(model.id, model.upstream) for model in view.served]
    downloaded = {model.name: model.is_downloaded for model in view.catalogue}
    assert (downloaded["qwen3-4b"], downloaded["smollm2-135m"]) == (True, False)
    assert (view.can_load, view.memory.limit_bytes) == (False, 4_000_000_000)
    assert "dragoman serve --model" in view.note
    assert finder.find().models["mine"] is finder.find().models["mine"], "a file is read once"
    detail = model_detail(InProcessGateway([]), finder, "MINE")
    assert detail.model.name == "mine"
    assert next(fact.value for fact in detail.facts if fact.name == "file") == str(home / "own/mine.gguf")
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        model_detail(InProcessGateway([]), finder, "min")


async def test_changes_of_models_need_a_name_and_a_backend_that_runs_models(home: Path) -> None:
    async with served_console(plain, ["far"]) as console:
        assert (await console.get("/models")).json()["can_load"] is False
        for path, body, expected in (
            ("/models/load", {"model": "far"}, "not loaded by this gateway, but by its server"),
            ("/models/unload", {"model": "far"}, "not unloaded by this gateway"),
            ("/models/load", {}, "expected the name of a model, got none"),
            ("/models/load", {"name": "far"}, "unknown field `name`"),
            ("/models/pull", {}, "expected the name of a model, got ''"),
        ):
            answer = await console.change("POST", path, body)
            assert (answer.status_code, expected in answer.text) == (400, True), answer.text
        assert (await console.change("POST", "/models/pull/stop", {"model": "x"})).json() == {
            "model": "x",
            "stopped": False,
        }
        assert (await console.get("/models/facts?name=nothing")).status_code == 400
        assert (await console.client.post(f"{API}/models/load", json={"model": "far"})).status_code == 403


def test_settings_have_their_origin_and_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[server]\nreload = "off"\n[upstreams.far]\nurl = "http://h/v1"\napi_key = "sk-not-shown"\n')
    file.chmod(0o600)
    source = ConfigSource(lambda: file, {"DRAGOMAN_SERVER_PORT": "1234"}, {"server.host": "::1"}, False, None)
    running, _ = settings.load(file, source.environ, source.flags)
    found = list_settings(running, source)
    rows = {row.key: row for row in found.settings}
    assert (found.config_path, found.problems) == (str(file), [])
    assert "at the next start" in found.reload
    assert (rows["server.port"].value, rows["server.port"].origin) == ("1234", "DRAGOMAN_SERVER_PORT")
    assert (rows["server.host"].value, rows["server.host"].origin) == ('"::1"', "command line")
    assert rows["upstreams.far.url"].section == "upstreams.far"
    assert rows["upstreams.far.url"].description
    key = rows["upstreams.far.api_key"]
    assert (key.is_secret, key.value, key.is_default) == (True, "", False)
    assert rows["server.workers"].is_default
    assert rows["upstreams.far.tool_mode"].choices == ("auto", "native", "parse", "prompt")
    assert "vllm" in rows["upstreams.far.provider"].choices
    assert (found.default_path, found.file_content) == ("", "")
    assert all(row.description for row in found.settings)
    file.write_text('[server]\nreload = "off"\nmax_body_bytes = -1\n')
    assert "the present ones are wrong" in list_settings(running, source).problems[0]
    file.write_text("[records]\nkeep_days = 3\n")
    assert "in force after a restart: " in list_settings(running, source).problems[0]
    assert list_settings(running, None).config_path == ""


def test_missing_settings_file_is_offered_with_its_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    flags = {"upstreams.my server.url": "http://h/v1", "server.port": 1234}
    source = ConfigSource(lambda: None, {}, flags, False, None)
    running, _ = settings.load(None, source.environ, source.flags)
    found = list_settings(running, source)
    assert found.default_path == str(tmp_path / "dragoman/config.toml")
    file = Path(found.default_path)
    file.parent.mkdir()
    file.write_text(found.file_content)
    written, _ = settings.load(file, {}, {})
    assert written == running


# Downloads


@pytest.fixture
def hub_server() -> Iterator[HubServer]:
    with hub(REPOSITORY) as server:
        yield server


def events(client: httpx2.Client, model: str) -> list[tuple[str, Any]]:
    """The events of a download."""
    found, name = [], ""
    with client.stream("POST", f"{API}/models/pull", json={"model": model}, headers=CHANGE) as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
    return found


def has_arrived(pulls: list[Any]) -> list[Any]:
    """Returns the downloads once all that the server has sent is stored."""
    return pulls if pulls and pulls[0]["progress"]["done_bytes"] >= 100_000 else []


def test_model_is_downloaded_stopped_and_continued(tmp_path: Path, hub_server: HubServer) -> None:
    variables = {"HF_ENDPOINT": hub_server.address, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    variables |= {"DRAGOMAN_HOME": str(tmp_path / "cache")}
    model = "hf:owner/repo"
    off = {"embedded.enabled": "false", "records.enabled": "false"}
    gateway = Gateway(tmp_path, "--upstream", hub_server.address, settings=off, variables=variables, new_process=True)
    try:
        gateway.ready()
        with gateway.client() as client:

            def stop() -> None:
                with gateway.client() as other:
                    shown = until(lambda: has_arrived(other.get(f"{API}/models").json()["pulls"]))
                    assert [pull["model"] for pull in shown] == [model]
                    answer = other.post(f"{API}/models/pull/stop", json={"model": model}, headers=CHANGE)
                    assert answer.json()["stopped"] is True

            hub_server.cut_at, hub_server.cut_after, hub_server.on_cut = 100_000, 1, stop
            *_, (name, value) = events(client, model)
            assert (name, "was stopped; what has arrived is kept" in value["error"]["message"]) == ("error", True)
            whole = events(client, model)
            assert [name for name, _ in whole][-1] == "result"
            assert any(name == "note" and "hf:owner/repo/m-Q4_K_M.gguf" in value["text"] for name, value in whole)
            assert Path(whole[-1][1]["path"]).read_bytes() == REPOSITORY["m-Q4_K_M.gguf"]
            begin = hub_server.requests[-1].removeprefix("GET bytes=").removesuffix("-")
            assert 100_000 <= int(begin) < len(REPOSITORY["m-Q4_K_M.gguf"])
            listed = until(lambda: client.get(f"{API}/models").json()["local"])
            assert listed[0]["name"] == "hf--owner--repo--m-Q4_K_M"
    finally:
        gateway.stop()


async def test_model_is_loaded_unloaded_and_busy() -> None:
    class Engine(Scripted):
        """A backend that runs a model, which has as many requests as the test says."""

        active = 0
        loaded = False

        def health(self) -> Mapping[str, object]:
            states = {"m": {"state": "ready", "active": self.active}} if self.loaded else {}
            return {"backend": "engine", "ready": True, "models": states}

        async def load_model(self, model: str) -> None:
            self.loaded = True

        async def unload_model(self, model: str) -> None:
            self.loaded = bool(self.active)

    engine = Engine(plain)
    async with served_console(InProcessGateway([engine])) as console:
        assert (await console.get("/models")).json()["can_load"] is True
        expected = [("load", 0, "ready", "m is loaded."), ("unload", 0, "", "m is unloaded.")]
        expected += [("load", 2, "ready", "m is loaded."), ("unload", 2, "unloading", "after its running requests: 2")]
        for action, engine.active, state, text in expected:
            answer = (await console.change("POST", f"/models/{action}", {"model": "m"})).json()
            assert (answer["model"], answer["state"], text in answer["message"]) == ("m", state, True)
