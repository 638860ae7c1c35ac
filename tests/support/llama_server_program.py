"""A real llama-server program: that of the user, or that of the test requirements."""

import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

_PROCESSOR: Final = Path("/proc/cpuinfo")


def llama_server_program() -> str:
    """Returns its path; skips the test where neither is."""
    own = Path(sys.executable).with_name("llama-server-vulkan")
    path = str(own) if own.exists() else shutil.which("llama-server")
    if own.exists() and "amx_int8" not in _PROCESSOR.read_text():
        pytest.skip("the packaged llama-server was built for processors with AMX")
    if path is None:
        pytest.skip("no llama-server: the group `servers` has one for Linux on x86_64")
    return path
