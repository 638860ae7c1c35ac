"""A private Redis server on loopback, if its program is installed (Debian: redis-server)."""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator

from support.ports import free_port

PROGRAM = shutil.which("redis-server")


class RedisServer:
    """A server that a test can stop, interrupt and start again, on the same port."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert PROGRAM is not None
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", *(self._options or ("--save", ""))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        while b"Ready to accept connections" not in (line := self._process.stdout.readline()):
            assert line, "redis-server ended"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def freeze(self) -> None:
        """The server accepts connections, but does nothing."""
        self._signal(signal.SIGSTOP)

    def unfreeze(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextlib.contextmanager
def running(*options: str) -> Iterator[RedisServer]:
    """A server that accepts connections, without persistence unless the options ask for it."""
    server = RedisServer(*options)
    server.start()
    try:
        yield server
    finally:
        server.kill()
