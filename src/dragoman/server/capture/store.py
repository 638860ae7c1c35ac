"""Decides which exchanges are captured, and stores each in a folder, or in memory; the oldest are deleted.

Files are written in a thread after the exchange, so that no response waits for the disk. If writing fails, as on a full
disk, that is logged once and the gateway continues.
"""

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from dragoman.config.server import CaptureConfig
from dragoman.core.errors import ConfigError, RequestError, one_of, quote
from dragoman.gateway.gateway import Gateway
from dragoman.redaction.redact import Redactor, secret_variables
from dragoman.server.capture.files import SUMMARY, Files, capture_files, timestamp
from dragoman.server.capture.load import load
from dragoman.server.capture.memory import MemoryCaptures
from dragoman.server.capture.recorder import CaptureRecorder
from dragoman.server.observe.access_log import AccessRecord

log = logging.getLogger("dragoman.capture")

HEADER: Final = "x-dragoman-capture"
_ON_DEMAND: Final = ("on", "off")
_IGNORED_WARNINGS: Final = frozenset({"estimated_usage"})
"""Every response of a server that does not report usage has this warning, so it does not start a capture."""
WAITING_BYTES: Final = 256 * 1024 * 1024
"""Maximum size of the exchanges that wait to be written; a single one may be larger."""
_FOLDER: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z-req_\w+")


class CaptureStore:
    """The captures of one server."""

    def __init__(
        self,
        config: CaptureConfig,
        gateway: Gateway,
        api_keys: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
        memory: MemoryCaptures | None = None,
    ) -> None:
        """Args:
            config: which exchanges are captured, and where.
            gateway: the gateway, for its settings and secrets.
            api_keys: secrets that are redacted.
            environ: the environment variables, whose secrets are redacted.
            memory: where captures are stored instead of in a folder.

        Raises:
            ConfigError: the folder cannot be written to.
        """
        self._config, self._gateway, self._memory = config, gateway, memory
        self._folder = Path() if memory is not None else folder(config.dir)
        self._redactor = Redactor([*api_keys, *gateway.secret_values(), *secret_variables(environ)])
        self._writer = ThreadPoolExecutor(1, "dragoman-capture")
        self._failing = self._dropping = False
        self._lock = threading.Lock()
        self._waiting = 0
        """Bytes of the exchanges that still have to be written."""

    def names(self) -> list[str]:
        """Returns the names of all captures, the oldest first."""
        if self._memory is not None:
            return self._memory.names()
        with suppress(OSError):
            return sorted(each.name for each in _folders(self._folder))
        return []

    def read(self, name: str) -> Files | None:
        """Returns the files of a capture; None: no capture has this name.

        Args:
            name: one of `names`.
        """
        if self._memory is not None:
            return self._memory.get(name)
        if not _FOLDER.fullmatch(name) or not (self._folder / name / SUMMARY).is_file():
            return None
        return load(self._folder / name)[1]

    def read_file(self, name: str, file: str) -> bytes | None:
        """Returns one file of a capture; None: the capture has no such file.

        Args:
            name: one of `names`.
            file: the name of the file.
        """
        if self._memory is not None:
            return (self._memory.get(name) or {}).get(file)
        with suppress(OSError):
            return (self._folder / name / file).read_bytes() if _FOLDER.fullmatch(name) else None
        return None

    def files_so_far(self, capture: CaptureRecorder, facts: Mapping[str, object]) -> Files:
        """Returns the files of an exchange that still runs.

        Args:
            capture: what is captured of it.
            facts: the fields of its log line so far.
        """
        return capture_files(capture, facts, self._gateway, self._redactor)

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> CaptureRecorder | None:
        """Returns the recorder for this exchange, or None if it is not captured.

        Raises: RequestError: the header has an unknown value.
        """
        choice = headers.get(HEADER)
        if choice is not None and choice not in _ON_DEMAND:
            raise RequestError(f"unknown {quote(choice)}{one_of(choice, _ON_DEMAND, 'expected ')} - at {HEADER}")
        is_captured = choice == "on" or (choice is None and self._config.filter != "requested")
        return CaptureRecorder(method, path, headers) if is_captured else None

    def finish(self, capture: CaptureRecorder, record: AccessRecord) -> str | None:
        """The exchange is over: stores its capture if the settings ask for it, and returns the name of its folder."""
        only_failed = self._config.filter == "failed" and capture.headers.get(HEADER) != "on"
        if only_failed and not (record.error or record.status >= 400 or set(record.warnings) - _IGNORED_WARNINGS):
            return None
        size = capture.size_bytes
        if self._waiting and self._waiting + size > WAITING_BYTES:
            if not self._dropping:
                log.warning("exchanges end faster than they can be kept: those that end now are not")
            self._dropping = True
            return None
        self._dropping = False
        with self._lock:
            self._waiting += size
        name = f"{timestamp(time.time() - record.seconds)}-{record.id}"
        self._writer.submit(self._keep, name, capture, record.facts()).add_done_callback(partial(self._done, size))
        return name

    def _done(self, size: int, done: "Future[None]") -> None:
        with self._lock:
            self._waiting -= size
        _log_result(done)

    def wait_idle(self) -> None:
        """Waits until all captures are written."""
        self._writer.submit(lambda: None).result()

    def _keep(self, name: str, capture: CaptureRecorder, outcome: Mapping[str, object]) -> None:
        files = capture_files(capture, outcome, self._gateway, self._redactor)
        if self._memory is not None:
            self._memory.add(name, files)
            return
        try:
            write(self._folder / name, files)
            self._failing = False
        except OSError as error:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            if not self._failing:
                log.warning("exchanges cannot be kept in %s: %s", self._folder, (error.strerror or str(error)).lower())
            self._failing = True
        prune(self._folder, self._config.max_exchanges, self._config.max_bytes)


def folder(named: str) -> Path:
    """Returns the folder, created if necessary.

    Raises: ConfigError: it cannot be created or written to.
    """
    path = Path(named).expanduser()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {path}: {(error.strerror or str(error)).lower()} - at capture.dir") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to {path}; its owner must be who runs this - at capture.dir")
    return path


def write(place: Path, files: Files) -> None:
    """Writes the files to a folder that appears only when it is complete.

    Raises: OSError: the disk is full, or the folder cannot be written to.
    """
    partial = place.with_name(f".{place.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(mode=0o700)
        for name, data in files.items():
            path = partial / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
        partial.rename(place)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def prune(place: Path, max_exchanges: int, max_bytes: int) -> None:
    """Deletes the oldest captures until at most `max_exchanges` with `max_bytes` in total are left."""
    count, size = 0, 0
    with suppress(OSError):
        for each in sorted(_folders(place), reverse=True):
            count += 1
            size += sum(file.stat().st_size for file in each.rglob("*") if file.is_file())
            if count > max(max_exchanges, 1) or (size > max_bytes and count > 1):
                shutil.rmtree(each, ignore_errors=True)


def _folders(place: Path) -> Iterable[Path]:
    """Yields the folders that `write` made: only those may be deleted."""
    return (each for each in place.iterdir() if _FOLDER.fullmatch(each.name))


def _log_result(done: "Future[None]") -> None:
    """Logs an unexpected exception of the writing thread."""
    if (bug := done.exception()) is not None:
        log.error("bug while keeping an exchange", exc_info=bug)
