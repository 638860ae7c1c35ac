"""Chat templates of others, rendered in a process of their own (`render_worker`), which is started once and kept.

A template that takes too long or too much memory is refused, and for a while not tried again: it costs its requests an
error, and nobody else more than a moment.
"""

import atexit
import json
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

from dragoman.core.errors import ConfigError
from dragoman.prompting import jinja_sandbox
from dragoman.prompting.render_worker import LENGTH

CPU_S: Final = 1.0
"""For one template; usual conversations take thousandths of that."""
BYTES_PER_S: Final = 1024 * 1024
"""As many of the conversation have another second."""
BLOCK_BELOW_BYTES: Final = 256 * 1024
"""Of a conversation: with a larger one a client could make the template refused for others."""
START_TIMEOUT_S: Final = 20.0
"""For the process to start."""
WAIT_FACTOR: Final = 5
"""Times that time for an answer of the process, which may be slow on a busy machine."""
BLOCK_S: Final = 60.0
"""Time for which a template that took too much is refused unseen."""
MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "SYSTEMROOT")


class SandboxedTemplate:
    """One template, rendered in that process."""

    def __init__(self, source: str) -> None:
        """Raises: ConfigError: it is no Jinja; the message says why."""
        self._source = source
        self._key = sha256(source.encode("utf-8", "surrogatepass")).digest()
        _process.render(self._key, source, None)

    def render(self, **variables: Any) -> str:
        """The text. Raises: one of `jinja.FAILURES`."""
        return _process.render(self._key, self._source, variables)


class _RenderProcess:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._blocked: dict[bytes, tuple[float, str]] = {}
        """Templates that took too much: until when they are not tried, and what to say."""
        atexit.register(self.close)

    def render(self, key: bytes, source: str, variables: dict[str, Any] | None) -> str:
        """The text that it makes of this, or what `jinja` raises."""
        until, why = self._blocked.get(key, (0.0, ""))
        if time.monotonic() < until:
            raise jinja_sandbox.TemplateError(why)
        given = pickle.dumps(variables)
        cpu_s = CPU_S + len(given) / BYTES_PER_S
        with self._lock:
            said = self._exchange(pickle.dumps((source, variables, cpu_s)), 1 + WAIT_FACTOR * cpu_s)
        if said.get("stop") and len(given) < BLOCK_BELOW_BYTES:
            self._blocked[key] = (time.monotonic() + BLOCK_S, said["error"])
        if said.get("config"):
            raise ConfigError(said["error"])
        if "error" in said:
            raise jinja_sandbox.TemplateError(said["error"])
        return str(said["text"])

    def _exchange(self, asked: bytes, within_s: float) -> dict[str, Any]:
        if self._child is None or self._child.poll() is not None:
            within_s += START_TIMEOUT_S
        child = self._ensure_started()
        assert child.stdin is not None
        try:
            child.stdin.write(LENGTH.pack(len(asked)) + asked)
            child.stdin.flush()
            until = time.monotonic() + within_s
            (size,) = LENGTH.unpack(self._read(child, LENGTH.size, until))
            if size > MAX_OUTPUT_BYTES:
                raise OverflowError
            said: dict[str, Any] = json.loads(self._read(child, size, until))
            return said
        except (OSError, EOFError, OverflowError):
            self.close()
            return {"error": "it takes too long, or too much memory", "stop": True}

    def _read(self, child: "subprocess.Popen[bytes]", size: int, until: float) -> bytes:
        assert child.stdout is not None
        found = bytearray()
        while len(found) < size:
            left_s = until - time.monotonic()
            if sys.platform != "win32" and not (left_s > 0 and _is_ready(child.stdout.fileno(), left_s)):
                raise TimeoutError
            piece = os.read(child.stdout.fileno(), size - len(found))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)

    def _ensure_started(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "dragoman.prompting.render_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if name in _ENVIRONMENT},
                start_new_session=True,  # Ctrl-C is not for it
            )
        return self._child

    def close(self) -> None:
        """End it; the next template starts another."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        child.wait()


def _is_ready(descriptor: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


_process: Final = _RenderProcess()
