"""A real llama-server program: that of the user, or that of the test requirements."""

import shutil
import sys
from pathlib import Path

import pytest


def llama_server_program() -> str:
    """Returns its path; skips the test where neither is."""
    own = Path(sys.executable).with_name("llama-server-vulkan")
    path = str(own) if own.exists() else shutil.which("llama-server")
    if path is None:
        pytest.skip("no llama-server: the group `servers` has one for Linux on x86_64")
    return path
