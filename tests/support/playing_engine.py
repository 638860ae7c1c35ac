"""An engine that plays what a model might write."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.backend import EmbeddedBackend
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.engine import Done, Engine, Output, Piece, Progress
from dragoman.catalog import models
from dragoman.core.errors import RequestError

PROFILE = models.default()


def silent(_: str) -> None:
    """Nobody listens."""


def backend(profile: models.ModelProfile = PROFILE, **config: Any) -> EmbeddedBackend:
    """Without an engine that runs."""
    return EmbeddedBackend(weights.find(PROFILE.name), profile, EmbeddedConfig(**config), silent)


class Playing(Engine):
    """Writes these texts, one a completion, in small pieces."""

    def __init__(self, *texts: str, finish: str = "stop") -> None:
        self._texts = list(texts)
        self._finish = finish
        self.asked: list[bool] = []
        """Of each completion, whether it was one more of an answer."""

    async def complete(self, body: Mapping[str, Any], *, again: bool = False) -> AsyncGenerator[Output, None]:
        self.asked.append(again)
        text = self._texts.pop(0)
        if text == "refused":
            raise RequestError("no such grammar")
        yield Progress(10, 0)
        for at in range(0, len(text), 3):
            yield Piece(text[at : at + 3])
        yield Done(self._finish, len(text), 0)
