"""Recorded requests of real clients."""

from typing import Final

from dragoman import dialects
from support import client_recordings

RECORDED: Final = dict(client_recordings.recorded())


BY_PATH: Final = {dialects.get(name).path: dialects.get(name) for name in dialects.names()}
