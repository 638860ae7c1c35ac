"""Loads chat templates; renders untrusted ones in a separate process (`render_worker`), started once and kept.

A template that takes too much time or memory is rejected and blocked for a while: its requests get an error, and others
are delayed only for a moment.
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
"""CPU time for one template, in seconds; usual conversations need a thousandth of it."""
BYTES_PER_S: Final = 1024 * 1024
"""A conversation gets one more second for each of so many bytes."""
BLOCK_BELOW_BYTES: Final = 256 * 1024
"""A template is blocked only if the conversation is smaller, so that a client cannot block it for others."""
START_TIMEOUT_S: Final = 20.0
"""Time for the process to start, in seconds."""
WAIT_FACTOR: Final = 5
"""Factor of the CPU time after which the process must have responded, because it can be slow on a busy machine."""
BLOCK_S: Final = 60.0
"""Time for which a template that took too much is blocked, in seconds."""
MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "SYSTEMROOT")


def load_template(source: str) -> jinja_sandbox.Renderable:
    """Loads a chat template; it is rendered in the separate process unless it is a trusted one.

    Raises:
        ConfigError: The source is not valid Jinja; the message says why.
    """
    if not source.isascii() or sha256(source.encode()).hexdigest() not in jinja_sandbox.TRUSTED_TEMPLATES:
        return SandboxedTemplate(source)
    return jinja_sandbox.compile_template(source)


class SandboxedTemplate:
    """A chat template that is rendered in the separate process."""

    def __init__(self, source: str) -> None:
        """Raises:
        ConfigError: The source is not valid Jinja; the message says why.
        """
        self._source = source
        self._key = sha256(source.encode("utf-8", "surrogatepass")).digest()
        _process.render(self._key, source, None)

    def render(self, **variables: Any) -> str:
        """Returns the text of the prompt.

        Raises:
            Exception: One of `jinja_sandbox.RENDER_ERRORS`.
        """
        return _process.render(self._key, self._source, variables)


class _RenderProcess:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._blocked: dict[bytes, tuple[float, str]] = {}
        """Blocked templates: until when (monotonic time), and the error message."""
        atexit.register(self.close)

    def render(self, key: bytes, source: str, variables: dict[str, Any] | None) -> str:
        """Renders a template in the process; `variables` None: only compiles it.

        Raises:
            TemplateError: It fails, takes too long, or is blocked.
            ConfigError: It is not valid Jinja.
        """
        until, why = self._blocked.get(key, (0.0, ""))
        if time.monotonic() < until:
            raise jinja_sandbox.TemplateError(why)
        pickled = pickle.dumps(variables)
        cpu_s = CPU_S + len(pickled) / BYTES_PER_S
        with self._lock:
            result = self._exchange(pickle.dumps((source, variables, cpu_s)), 1 + WAIT_FACTOR * cpu_s)
        if result.get("stop") and len(pickled) < BLOCK_BELOW_BYTES:
            self._blocked[key] = (time.monotonic() + BLOCK_S, result["error"])
        if result.get("config"):
            raise ConfigError(result["error"])
        if "error" in result:
            raise jinja_sandbox.TemplateError(result["error"])
        return str(result["text"])

    def _exchange(self, job: bytes, within_s: float) -> dict[str, Any]:
        if self._child is None or self._child.poll() is not None:
            within_s += START_TIMEOUT_S
        child = self._ensure_started()
        assert child.stdin is not None
        try:
            child.stdin.write(LENGTH.pack(len(job)) + job)
            child.stdin.flush()
            until = time.monotonic() + within_s
            (size,) = LENGTH.unpack(self._read(child, LENGTH.size, until))
            if size > MAX_OUTPUT_BYTES:
                raise OverflowError
            result: dict[str, Any] = json.loads(self._read(child, size, until))
            return result
        except (OSError, EOFError, OverflowError):
            self.close()
            return {"error": "it takes too long, or too much memory", "stop": True}

    def _read(self, child: "subprocess.Popen[bytes]", size: int, until: float) -> bytes:
        assert child.stdout is not None
        received = bytearray()
        while len(received) < size:
            left_s = until - time.monotonic()
            if sys.platform != "win32" and not (left_s > 0 and _is_ready(child.stdout.fileno(), left_s)):
                raise TimeoutError
            piece = os.read(child.stdout.fileno(), size - len(received))
            if not piece:
                raise EOFError
            received += piece
        return bytes(received)

    def _ensure_started(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "dragoman.prompting.render_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if name in _ENVIRONMENT},
                start_new_session=True,  # Ctrl-C is not sent to it
            )
        return self._child

    def close(self) -> None:
        """Terminates the process; the next template starts another."""
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
