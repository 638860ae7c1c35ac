"""A model whose template begins the reply is not calibrated: its threshold would not be used."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.gguf import Metadata
from dragoman.backends.embedded.questions.calibration import calibrate
from dragoman.catalog import models
from dragoman.core.errors import ConfigError

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}Assistant: <think>\n{% endif %}"
)


def test_calibration_is_refused() -> None:
    profile = replace(models.default(), name="m", format="hermes")
    metadata = Metadata("m", TEMPLATE, 4096, "", "", (), ())
    model = EmbeddedModel(Path("m.gguf"), profile, EmbeddedConfig(), lambda _: None, metadata)
    with pytest.raises(ConfigError, match="begins them with '<think>"):
        asyncio.run(calibrate(model, lambda _: None))
