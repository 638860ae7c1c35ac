"""The settings that `dragoman init` writes: valid in each combination, each setting below its description."""

import itertools
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from dragoman import config as settings
from dragoman.backends.embedded.gguf import Shape
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import models as catalog
from dragoman.cli.init.choices import ModelChoice, list_choices
from dragoman.cli.init.machine import FoundServer, Machine
from dragoman.cli.init.measure import NOT_MEASURED, Measurement
from dragoman.cli.init.settings_text import check_settings, describe_setting, format_tables
from dragoman.cli.init.tables import settings_tables
from dragoman.config.server import ServerConfig

SHAPE = Shape("llama", "model", 131_072, 0, 28_672, True)
SLOW, FAST = Measurement("m", 20.0, "prompt: it has no calls of its own"), Measurement("m", 2000.0)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home folder with the models of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "state"))


def upstream(name: str, *models: str, key: bool = False, **more: object) -> FoundServer:
    config = HttpConfig(url="http://127.0.0.1:1234/v1", provider=name, **more)  # type: ignore[arg-type]
    return FoundServer(name, name.title(), config, models, key)


SERVERS = {
    "none": (),
    "one": (upstream("lm_studio", "qwen3-8b"),),
    "several": (upstream("vllm", key=True), upstream("ollama", "a", "b", context_window=4096), upstream("llama_cpp")),
    "key": (upstream("vllm", "qwen", api_key_env="VLLM_KEY", api="openai_responses"),),
}


def file(tmp_path: Path, name: str, size_bytes: int = 2_000_000_000) -> LocalModel:
    path = tmp_path / ".lmstudio" / "models" / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return LocalModel(name, (), path, size_bytes, "lmstudio", SHAPE)


def written(machine: Machine, choice: ModelChoice, measured: Measurement = NOT_MEASURED) -> str:
    local = next((each for each in list_choices(machine) if each.is_embedded), None)
    return format_tables(settings_tables(machine, choice, local, measured))


def turned_on(text: str) -> str:
    """The settings with those that are off."""
    return re.sub(r"(?m)^#(?=[\[\w])", "", text)


@pytest.mark.parametrize("found", SERVERS)
@pytest.mark.parametrize("measured", [NOT_MEASURED, SLOW], ids=["unmeasured", "slow"])
def test_settings_are_valid_in_each_combination(found: str, measured: Measurement, tmp_path: Path) -> None:
    files = (file(tmp_path, "phi-9"), file(tmp_path, 'od"d\\name', 5_000_000))
    tried = set()
    for held, agents, (login, port) in itertools.product(
        ((), files), ((), ("claude", "codex")), ((False, 8484), (True, 8490))
    ):
        machine = Machine(SERVERS[found], held, agents, login, "", port)
        for choice in list_choices(machine):
            text = written(machine, choice, measured)
            config = check_settings(text)
            assert config.server.port == port
            assert config.claude_cli.enabled == (choice.kind == "claude")
            assert set(config.upstreams) == {server.name for server in machine.servers if not server.requires_key}
            assert not choice.is_embedded or config.embedded.model == choice.setting
            check_settings(turned_on(text))
            tried.add(choice.kind)
    assert tried >= {"file", "download", "claude"}


def test_each_setting_is_below_its_description(tmp_path: Path) -> None:
    machine = Machine(SERVERS["several"], (file(tmp_path, "phi-9"),), ("claude",), has_claude_login=True, port=8490)
    chosen = next(choice for choice in list_choices(machine) if choice.kind == "server")
    lines, table = written(machine, chosen, SLOW).splitlines(), ""
    names = []
    for before, line in itertools.pairwise(lines):
        if match := re.fullmatch(r"#?\[(.+)\]", line):
            table = match[1]
        elif match := re.match(r"#?(\w+) = ", line):
            assert before == f"# {describe_setting(table, match[1])}"
            names.append(f"{table}.{match[1]}")
    assert {"server.port", "upstreams.ollama.prompt_tokens", "upstreams.ollama.tools", "claude_cli.enabled"} <= {*names}
    assert {"upstreams.vllm.api_key_env", "embedded.model", "embedded.context_window"} <= {*names}


def test_descriptions_are_one_sentence() -> None:
    assert describe_setting("server", "host") == "Address to listen on."
    assert describe_setting("upstreams.x", "context_window").endswith("are rejected.")
    for key, *_ in settings.setting_docs():
        assert "\n" not in describe_setting(*key.rsplit(".", 1))


def test_names_of_models_cannot_add_settings() -> None:
    """The names in remarks are those that a server reports."""
    machine = Machine((upstream("lm_studio", "a\n[server]\nhost = '0.0.0.0'", "b\u2028[x]", "c\x1b[2J"),))
    text = written(machine, list_choices(machine)[0])
    assert msgspec.structs.replace(check_settings(text).server, keys_path="") == ServerConfig()
    assert tomllib.loads(text).keys() == {"upstreams"}
    assert r"a\n[server]\nhost" in text


def test_slow_model_gets_a_limit_for_the_tools_of_found_agents(tmp_path: Path) -> None:
    machine = Machine(SERVERS["one"], (file(tmp_path, "phi-9"),), ("claude", "codex"))
    of_server, embedded = list_choices(machine)[:2]
    chosen = check_settings(written(machine, of_server, SLOW)).upstreams["lm_studio"]
    assert (chosen.prompt_tokens, chosen.tools[:2], "apply_patch" in chosen.tools) == (720, ("Read", "Edit"), True)
    assert check_settings(written(machine, of_server, FAST)).upstreams["lm_studio"].prompt_tokens == 0
    own = check_settings(written(machine, embedded, SLOW)).embedded
    assert (own.first_response_target_s, own.tools) == (60, chosen.tools)


@pytest.mark.parametrize(
    ("memory_bytes", "window", "slots"),
    [(None, 32_768, 2), (8_000_000_000, 32_768, 2), (3_500_000_000, 32_768, 1), (2_900_000_000, 16_384, 1)],
)
def test_context_window_is_one_for_agents_that_fits_memory(
    memory_bytes: int | None, window: int, slots: int, tmp_path: Path
) -> None:
    machine = Machine(files=(file(tmp_path, "phi-9"),), memory_bytes=memory_bytes)
    own = check_settings(written(machine, list_choices(machine)[0])).embedded
    assert (own.context_window, own.max_concurrency) == (window, slots)


def test_small_model_keeps_the_default_window() -> None:
    machine = Machine()
    small = next(choice for choice in list_choices(machine) if choice.name == catalog.default().name)
    assert check_settings(written(machine, small)).embedded.context_window == 0


def test_remarks_tell_what_was_measured(tmp_path: Path) -> None:
    machine = Machine(SERVERS["one"], agents=("claude",))
    text = written(machine, list_choices(machine)[0], SLOW)
    assert ": m reads 20 tokens/s; Claude Code sends 11,000 tokens first, which take 9 min; so its instructions" in text
    assert "tool calls work best in mode prompt: it has no calls of its own." in text
    busy = written(machine, list_choices(machine)[0], FAST._replace(load=2.5))
    assert "m reads 2000 tokens/s while other programs were busy (load 2.5 a core)" in busy
