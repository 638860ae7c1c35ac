"""The largest recent response of each model, from which reservations are estimated."""

from typing import Final, NamedTuple

_MAX_MODELS: Final = 1000
_FORGET: Final = 0.98
"""Factor by which each further response makes the largest one count less."""


class LargestResponse(NamedTuple):
    """Size of a response."""

    output_tokens: int = 0
    seconds: float = 0.0


class LargestResponses:
    """The largest recent response of each model that this process has got."""

    def __init__(self) -> None:
        self._by_model: dict[str, LargestResponse] = {}

    def add(self, model: str, output_tokens: int, seconds: float) -> None:
        """Adds a response.

        Args:
            model: The backend's own name of the model.
            output_tokens: Its tokens.
            seconds: The time that it took.
        """
        if len(self._by_model) >= _MAX_MODELS and model not in self._by_model:
            self._by_model.clear()
        before = self.find(model)
        self._by_model[model] = LargestResponse(
            max(output_tokens, int(before.output_tokens * _FORGET)), max(seconds, before.seconds * _FORGET)
        )

    def find(self, model: str) -> LargestResponse:
        """Returns the largest response of a model."""
        return self._by_model.get(model, LargestResponse())
