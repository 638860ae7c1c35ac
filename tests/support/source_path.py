"""The path under which programs find the source of the package."""

from pathlib import Path
from typing import Final

import dragoman

SOURCES: Final = str(Path(dragoman.__file__).parent.parent)
