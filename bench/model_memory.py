"""Compares the estimated memory of models with that of engines that have read a long prompt.

    python -m bench.model_memory [MODEL ...]     by default, all models that are pulled

The estimate decides how many models stay loaded: it may be too high by a third, but not too low.
"""

import asyncio
import sys

import psutil

from dragoman.backends.embedded import gguf, weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.local import memory
from dragoman.catalog import models as catalog
from dragoman.core.errors import ConfigError

CONTEXTS = (2048, 8192)
SLOTS = (1, 2)


async def measure(name: str, context_window: int, slots: int) -> None:
    """Prints one row: both sizes and their ratio."""
    path = weights.find_weights(name)
    shape = gguf.shape(path)
    config = EmbeddedConfig(model=name, context_window=context_window, max_concurrency=slots, prefix_cache_mb=0)
    estimated = memory.needed_bytes(path.stat().st_size, shape, config)
    model = EmbeddedModel.from_config(config, path, lambda line: None)
    await model.start()
    try:
        prompt = "word " * (context_window // 4)
        async for _ in model.engine.complete({"prompt": prompt, "n_predict": 1}):
            pass
        assert model.engine.pid is not None
        used = psutil.Process(model.engine.pid).memory_info().rss
    finally:
        await model.close()
    row = f"{name:24} {context_window:7} {slots:5} {estimated / 1e6:9.0f} {used / 1e6:9.0f} {estimated / used:6.2f}"
    print(row, flush=True)


def main(names: list[str]) -> None:
    """Measures each model with each context window and number of slots."""
    print(f"{'model':24} {'context':>7} {'slots':>5} {'estimate':>9} {'used MB':>9} {'ratio':>6}")
    for name in names or [profile.name for profile in catalog.models()]:
        try:
            weights.find_weights(name)
        except ConfigError:
            continue
        for context_window in CONTEXTS:
            for slots in SLOTS:
                asyncio.run(measure(name, context_window, slots))


if __name__ == "__main__":
    main(sys.argv[1:])
