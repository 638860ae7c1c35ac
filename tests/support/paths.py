"""Paths of the project and its test data."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SUPPORT: Final = ROOT / "tests" / "support"
DATA: Final = ROOT / "tests" / "data"
