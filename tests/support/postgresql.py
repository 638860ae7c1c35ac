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

from support.gateway import until

_NOBODY = 65534


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None: they are not installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


class Server:
    """The server, with its process."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self._folder, self.process = folder, process
        self._databases = 0

    def new_database(self) -> str:
        """Creates a database, and returns its URL."""
        import psycopg

        self._databases += 1
        name = f"records{self._databases}"
        with psycopg.connect(host=str(self._folder), user="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
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
        init = [found / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        env = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
        subprocess.run(init, check=True, capture_output=True, cwd=folder, env=env, **user)
        options = ["-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "autovacuum=off"]
        serve = [found / "postgres", "-D", folder / "data", "-k", folder, "-F", *options]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(serve, cwd=folder, env=env, stdout=log, stderr=log, **user)
        try:
            until(lambda: "ready to accept connections" in (folder / "log").read_text(), "PostgreSQL")
            yield Server(folder, process)
        finally:
            process.send_signal(signal.SIGINT)  # does not wait for clients
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
