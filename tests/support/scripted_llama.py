"""An engine whose model is scripted."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.catalog import models
from dragoman.core.errors import RequestError

PROFILE = models.default()


def silent(_: str) -> None:
    """Ignores the status."""


def backend(profile: models.ModelProfile = PROFILE, **config: Any) -> EmbeddedModel:
    """The engine is not started; it has one thread, since several would wait for each other on a busy machine."""
    own = EmbeddedConfig(**{"threads": 1, "prefix_cache_mb": 0, **config})
    return EmbeddedModel(weights.find_weights(PROFILE.name), profile, own, silent)


class ScriptedLlama(LlamaProcess):
    """Writes these texts, one for each completion, in small chunks."""

    def __init__(self, *texts: str, finish: str = "stop") -> None:
        self._texts = list(texts)
        self._finish = finish
        self.asked: list[bool] = []
        """For each completion, whether its response had begun."""

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        self.asked.append(admitted)
        text = self._texts.pop(0)
        if text == "refused":
            raise RequestError("no such grammar")
        yield Progress(10, 0)
        for at in range(0, len(text), 3):
            yield TokenText(text[at : at + 3])
        yield Done(self._finish, len(text), 0)
