"""The models that `dragoman init` offers, the default first."""

from pathlib import Path

import pytest

from dragoman.backends.embedded.gguf import Shape
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.stores import Origin
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import models as catalog
from dragoman.cli.init.choices import find_choice, list_choices, served_on_request
from dragoman.cli.init.machine import FoundServer, Machine
from dragoman.core.errors import ConfigError

SHAPE = Shape("llama", "model", 8192, 0, 1000, True)
LM_STUDIO = FoundServer("lm_studio", "LM Studio", HttpConfig(url="http://127.0.0.1:1234/v1"), ("embed-x", "qwen3-8b"))


def file(name: str, size_bytes: int, origin: Origin = "lmstudio", suffix: str = ".gguf") -> LocalModel:
    return LocalModel(name, (), Path(f"/models/{name}{suffix}"), size_bytes, origin, SHAPE)


QWEN = file("qwen2.5-coder-1.5b", 1_117_320_768, "pulled")
SMALL = file("smollm2-135m", 98_362_432, "pulled")


def names(machine: Machine) -> list[str]:
    return [choice.name for choice in list_choices(machine)]


def test_models_of_servers_are_first_without_embedding_models() -> None:
    assert names(Machine((LM_STUDIO,), (QWEN, SMALL))) == ["qwen3-8b", "qwen2.5-coder-1.5b", "smollm2-135m"]


def test_largest_fitting_file_is_the_default() -> None:
    files = (file("huge", 40_000_000_000), SMALL, QWEN, file("big", 4_000_000_000))
    machine = Machine(files=files, memory_bytes=8_000_000_000)
    assert names(machine) == ["big", "qwen2.5-coder-1.5b", "smollm2-135m", "huge"]
    assert list_choices(machine)[-1].about == "40.00 GB, LM Studio's file; more than the memory available"


def test_model_for_agents_is_offered_for_download_if_none_is_here() -> None:
    assert names(Machine()) == ["qwen2.5-coder-1.5b", "smollm2-135m"]
    assert names(Machine(files=(SMALL,))) == ["qwen2.5-coder-1.5b", "smollm2-135m"]
    assert [choice.kind for choice in list_choices(Machine(files=(SMALL,)))] == ["download", "file"]
    assert names(Machine(memory_bytes=1_000_000_000)) == ["smollm2-135m"]


def test_setting_is_the_name_unless_it_means_a_model_of_the_catalogue() -> None:
    files = (QWEN, file("llama3.2:3b", 2_000_000_000, "ollama", ""), file("qwen3-4b", 1_000_000_000))
    found = {choice.name: choice.setting for choice in list_choices(Machine(files=files)) if choice.kind == "file"}
    assert found == {
        "qwen2.5-coder-1.5b": "qwen2.5-coder-1.5b",
        "llama3.2:3b": "llama3.2:3b",
        "qwen3-4b": "/models/qwen3-4b.gguf",
    }


def test_other_files_are_served_with_the_embedded_model() -> None:
    machine = Machine((LM_STUDIO,), (QWEN, SMALL))
    of_server, embedded = list_choices(machine)[:2]
    assert served_on_request(machine, embedded) == ["smollm2-135m"]
    assert served_on_request(machine, of_server) == []


def test_claude_is_last_and_needs_a_login() -> None:
    assert names(Machine(has_claude_login=True))[-1] == "sonnet"


def test_model_is_found_by_name_server_or_alias() -> None:
    choices = list_choices(Machine((LM_STUDIO,), (QWEN,)))
    assert find_choice("lm_studio/qwen3-8b", choices).kind == "server"
    assert find_choice("qwen2.5-coder", choices).kind == "file"
    assert find_choice("qwen3-4b", choices).kind == "download"
    with pytest.raises(ConfigError, match=r"unknown model 'qwen3-8c'; did you mean 'qwen3-8b'\?"):
        find_choice("qwen3-8c", choices)


def test_catalogue_has_a_model_for_agents_that_is_small() -> None:
    assert min(row.size_bytes for row in catalog.models() if row.agents) < 2_000_000_000
