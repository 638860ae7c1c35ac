"""The side of a process that a supervisor started: its settings, its log, and what the supervisor orders.

Frames (`backends.shared.codec`) arrive on standard input, the settings first, and leave on standard output. The event
loop responds to ["ping"] with ["pong"], so a supervisor notices one that is stuck. When the supervisor has gone, for
whatever reason, standard input closes and the process ends.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dragoman.backends.shared import codec
from dragoman.cli import _log_format
from dragoman.cli._common import print_status
from dragoman.cli._terminal import exit_status
from dragoman.cli._workers.plan import LOG_LOCK, Plan
from dragoman.cli._workers.whole_lines import WholeLines
from dragoman.core.errors import DragomanError

ORPHAN_S: Final = 5.0
"""Time that a process has to end by itself after its supervisor."""
_ORPHANED: Final = ("orphaned",)


class Child:
    """This process, as its supervisor started it. Create it before anything else writes to standard output."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)  # what libraries print must not mix with the frames
        self._lock = threading.Lock()
        self._early: list[Sequence[Any]] = []
        self._deliver: Callable[[Sequence[Any]], object] = self._early.append
        self.is_orphaned = False
        plan = self._read()
        if plan is None:  # the supervisor ended at once
            sys.exit(1)
        self.plan = msgspec.json.decode(plan, type=Plan)
        sys.stderr = WholeLines(2, self.plan.folder / LOG_LOCK)
        _log_format.configure(self.plan.log_format, logging.StreamHandler(sys.stderr), debug=self.plan.debug)
        threading.Thread(target=self._listen, daemon=True).start()

    def report(self, text: str) -> None:
        """Shows a line to the user, in the format of the log."""
        if self.plan.log_format == "text":
            print_status(text)
        else:
            logging.getLogger("dragoman.serve").info("%s", text)

    def send(self, *frame: object) -> None:
        """Sends a frame to the supervisor."""
        with self._lock, contextlib.suppress(OSError):
            data = codec.encode(frame)
            while data:
                data = data[os.write(self._out, data) :]

    def attach(self, handler: Callable[[Sequence[Any]], None]) -> None:
        """Calls the handler in this event loop with each order of the supervisor, also those that have arrived."""
        loop = asyncio.get_running_loop()

        def deliver(frame: Sequence[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                if frame[0] == "ping":
                    loop.call_soon_threadsafe(self.send, "pong")
                else:
                    loop.call_soon_threadsafe(handler, frame)

        with self._lock:
            self._deliver = deliver
            for frame in self._early:
                deliver(frame)

    def run(self, serve: Callable[["Child"], int]) -> int:
        """Serves, and returns the exit status; an expected error goes to the supervisor."""
        try:
            return serve(self)
        except DragomanError as error:
            self.send("failed", error)
            return exit_status(error)
        except Exception:
            logging.getLogger("dragoman.serve").exception("bug: a process of the gateway ended")
            return 1
        finally:
            if self.is_orphaned:
                shutil.rmtree(self.plan.folder, ignore_errors=True)

    def _listen(self) -> None:
        while (data := self._read()) is not None:
            self._on_frame(codec.decode(data))
        self.is_orphaned = True
        self._on_frame(_ORPHANED)
        threading.Event().wait(ORPHAN_S)
        shutil.rmtree(self.plan.folder, ignore_errors=True)
        os._exit(1)

    def _on_frame(self, frame: Sequence[Any]) -> None:
        with self._lock:
            self._deliver(frame)

    def _read(self) -> bytes | None:
        """Returns the content of the next frame, or None at the end."""
        size = self._read_bytes(codec.LENGTH_BYTES)
        return self._read_bytes(int.from_bytes(size)) if size else None

    def _read_bytes(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            if not (piece := os.read(self._in, size - len(data))):
                return None
            data += piece
        return bytes(data)
