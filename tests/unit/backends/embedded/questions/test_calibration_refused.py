"""Models for which a threshold would not be used are not calibrated."""

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

TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}Assistant: "


@pytest.mark.parametrize(
    ("format", "ending", "message"),
    [("pythonic", "", "with the format pythonic"), ("hermes", "<think>\n", "begins them with '<think>")],
)
def test_calibration_is_refused(format: str, ending: str, message: str) -> None:
    profile = replace(models.default(), name="m", format=format)
    metadata = Metadata("m", f"{TEMPLATE}{ending}{{% endif %}}", 4096, "", "", (), ())
    model = EmbeddedModel(Path("m.gguf"), profile, EmbeddedConfig(), lambda _: None, metadata)
    with pytest.raises(ConfigError, match=message):
        asyncio.run(calibrate(model, lambda _: None))
