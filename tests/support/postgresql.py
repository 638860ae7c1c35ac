"""A private PostgreSQL server on a Unix socket, if its programs are installed (Debian: postgresql)."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from support.gateway import until

_NOBODY = 65534
_ENV = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None: they are not installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


class Server:
    """The server, with its process."""

    process: "subprocess.Popen[bytes]"

    def __init__(self, folder: Path, user: dict[str, Any]) -> None:
        self._folder, self._user = folder, user
        self._databases = 0

    def start(self) -> None:
        """Returns when connections are accepted."""
        found = programs()
        assert found is not None
        options = ["-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "autovacuum=off"]
        serve: list[str | Path] = [found / "postgres", "-D", self._folder / "data", "-k", self._folder, "-F", *options]
        path = self._folder / "log"
        with open(path, "wb") as log:
            self.process = subprocess.Popen(serve, cwd=self._folder, env=_ENV, stdout=log, stderr=log, **self._user)
        until(lambda: "ready to accept connections" in path.read_text(), "PostgreSQL")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # does not wait for clients
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of the server, the first one first."""
        for process in [self.process, *psutil.Process(self.process.pid).children(recursive=True)]:
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                process.send_signal(number)

    def freeze(self) -> None:
        """The server accepts connections, but does nothing."""
        self.signal(signal.SIGSTOP)

    def unfreeze(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.signal(signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(children, timeout=60)  # their memory keeps the next server from starting

    def new_database(self) -> str:
        """Creates a database, and returns its URL."""
        import psycopg

        self._databases += 1
        name = f"records{self._databases}"
        with psycopg.connect(host=str(self._folder), user="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self._folder}"


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server that accepts connections; its files are deleted at the end."""
    found = programs()
    assert found is not None
    # The server refuses to run as root.
    user: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="dragoman-pg-", dir="/tmp"))  # the path of a socket must be short
    if user:
        os.chown(folder, _NOBODY, _NOBODY)
    try:
        init: list[str | Path] = [
            found / "initdb",
            "-D",
            folder / "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        subprocess.run(init, check=True, capture_output=True, cwd=folder, env=_ENV, **user)
        server = Server(folder, user)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
