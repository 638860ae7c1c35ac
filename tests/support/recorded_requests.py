"""Requests that real clients sent."""

from typing import Final

import recording
from dragoman import dialects

RECORDED: Final = dict(recording.recorded())


BY_PATH: Final = {dialects.get(name).path: dialects.get(name) for name in dialects.names()}
