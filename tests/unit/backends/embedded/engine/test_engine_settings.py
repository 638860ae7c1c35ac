"""Settings of `[embedded]` for the engine, and the command line of llama-server."""

from pathlib import Path
from typing import Any

import pytest

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.engine import llama_server
from dragoman.backends.embedded.engine.settings import cache_size_factor, engine_settings
from dragoman.backends.embedded.start_worker import EngineSettings
from dragoman.core.errors import ConfigError


def settings(**config: Any) -> EngineSettings:
    return engine_settings(Path("/model.gguf"), None, 4096, 0, EmbeddedConfig(**config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"gpu_layers": "most"},
            "expected 'auto', 'all' or a number of layers, got 'most' - at embedded.gpu_layers",
        ),
        ({"gpu_layers": -1}, "expected 'auto', 'all' or a number of layers, got -1 - at embedded.gpu_layers"),
        (
            {"tensor_split": (0.0, 0.0)},
            "expected the share of each GPU, with at least one above 0, got [0, 0] - at embedded.tensor_split",
        ),
        (
            {"tensor_split": (3.0, -1.0)},
            "expected the share of each GPU, with at least one above 0, got [3, -1] - at embedded.tensor_split",
        ),
        (
            {"flash_attention": "yes"},
            "expected one of auto, on, off, got 'yes' - at embedded.flash_attention",
        ),
        (
            {"cache_type": "q8"},
            "expected one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, got 'q8'; did you mean 'q8_0'? "
            "- at embedded.cache_type",
        ),
        (
            {"cache_type": "q8_0", "flash_attention": "off"},
            "expected f32, f16, bf16 for the values in the KV cache, since flash attention is off, got 'q8_0' - at "
            'embedded.cache_type; flash_attention = "auto" allows it, or cache_type_v = "f16"',
        ),
        ({"engine": "llama"}, "expected one of xllamacpp, llama-server, got 'llama'; did you mean"),
    ],
)
def test_unusable_setting_is_reported(config: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(**config)
    assert str(error.value).startswith(message)


def test_cache_type_of_values_may_differ() -> None:
    made = settings(cache_type="q4_0", cache_type_v="f16", flash_attention="off", gpu_layers="20")
    assert made.cache_types == ("q4_0", "f16")
    assert made.gpu_layers == "20"


@pytest.mark.parametrize(
    ("config", "factor"),
    [({}, 1), ({"cache_type": "f32"}, 2), ({"cache_type": "q8_0"}, 34 / 64), ({"cache_type": "q4_0"}, 18 / 64)],
)
def test_size_of_the_cache(config: Any, factor: float) -> None:
    assert cache_size_factor(EmbeddedConfig(**config)) == factor


def test_reading_threads_follow_threads() -> None:
    assert (settings(threads=3).threads, settings(threads=3).reading_threads) == (3, 3)
    assert settings(threads=3, reading_threads=8).reading_threads == 8


def test_command_line_of_llama_server(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.touch(0o700)
    made = settings(
        engine="llama-server",
        llama_server=str(program),
        max_concurrency=2,
        gpu_layers=20,
        tensor_split=(3.0, 1.0),
        cache_type="q8_0",
        threads=3,
        batch_size=128,
    )
    command = llama_server.command(made)
    assert command[0] == str(program)
    options = dict(zip(command[1::2], command[2::2], strict=False))
    expected = {
        "--model": "/model.gguf",
        "--ctx-size": "8192",
        "--parallel": "2",
        "--n-gpu-layers": "20",
        "--tensor-split": "3,1",
        "--cache-type-k": "q8_0",
        "--cache-type-v": "q8_0",
        "--threads": "3",
        "--batch-size": "128",
        "--ubatch-size": "128",
        "--flash-attn": "auto",
    }
    assert options | expected == options
