"""Settings of the hardware, and that both engines apply them: what they report of themselves."""

import asyncio
from typing import Any

import pytest

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine.load_log import LoadFacts
from support.llama_server_program import llama_server_program
from support.scripted_llama import PROFILE

pytestmark = [pytest.mark.model, pytest.mark.asyncio]


async def loaded(engine: str, **config: Any) -> tuple[LoadFacts, list[str]]:
    """Returns what the engine reported, and the lines that Dragoman reported until then."""
    if engine == "llama-server":
        config |= {"engine": engine, "llama_server": llama_server_program()}
    lines: list[str] = []
    is_told = asyncio.Event()

    def report(line: str) -> None:
        lines.append(line)
        if line.startswith(path.stem + ": "):
            is_told.set()

    path = weights.find_weights(PROFILE.name)
    settings = EmbeddedConfig(**{"threads": 1, "context_window": 1024, "max_concurrency": 1, **config})
    model = EmbeddedModel(path, PROFILE, settings, report)
    await model.start()
    await is_told.wait()
    reply = [each async for each in model.engine.complete({"prompt": "Hello", "n_predict": 2})]
    assert reply
    assert str(model.health()["hardware"]) in lines[-1]
    await model.close()
    return model.engine.load_facts, lines


@pytest.mark.parametrize("engine", ["xllamacpp", "llama-server"])
async def test_engine_applies_settings(engine: str) -> None:
    facts, _ = await loaded(
        engine,
        cache_type="q8_0",
        flash_attention="on",
        batch_size=64,
        threads=1,
        reading_threads=2,
        tensor_split=(3.0, 1.0),
    )
    assert facts.cache_types == ("q8_0", "q8_0")
    assert facts.flash_attention == "enabled"
    assert facts.batch_tokens == 64
    assert (facts.threads, facts.reading_threads) == (1, 2)
    # 1024 tokens, 30 layers, 192 numbers each for keys and values, in blocks of 32 with 34 bytes.
    assert facts.buffers_mib["CPU", "KV"] == round(1024 * 30 * 2 * 192 * 34 / 32 / 2**20, 2)


@pytest.mark.parametrize("engine", ["xllamacpp", "llama-server"])
async def test_values_of_the_cache_have_a_type_of_their_own(engine: str) -> None:
    facts, lines = await loaded(engine, cache_type="q4_0", cache_type_v="f16", flash_attention="off", gpu_layers=0)
    assert facts.cache_types == ("q4_0", "f16")
    assert facts.flash_attention == "disabled"
    assert facts.batch_tokens == (256 if engine == "xllamacpp" else 512)
    assert "CPU only, 1 thread" in lines[-1]
