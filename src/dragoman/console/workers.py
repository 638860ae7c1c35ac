"""The console of a gateway with several processes: a page is served by one of them, and shows the exchanges of all.

In the private folder of the gateway:

    console/w-PID      a socket: exists while a page watches in that process; the other processes send their rows to it
    console/capturing  exists while exchanges are captured for the console
    console/captures/  … there, as one process could not read what another has in memory

A thread of each process looks for these files, and does nothing else while there are none.
"""

import asyncio
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from dragoman.config.server import CaptureConfig
from dragoman.console.api import TrafficRow
from dragoman.console.traffic.changes import RowChanges
from dragoman.server.capture.memory import MAX_EXCHANGES, MAX_TOTAL_BYTES
from dragoman.server.observe.live_feed import LiveFeed

log = logging.getLogger("dragoman.console")

LOOK_S: Final = 0.5
"""How often the files are looked for."""
SEND_S: Final = 0.1
"""How often rows are sent to a page that watches."""
MISSED_S: Final = 5.0
"""Age of exchanges that a page is sent at first: it has opened before this process noticed."""
MAX_DATAGRAM_ROWS: Final = 40
"""Maximum rows of one datagram: the system limits its size, by default to 208 KiB."""
_MAX_DATAGRAM_BYTES: Final = 256 * 1024


class ConsoleFolder:
    """The files by which the processes of a gateway share the console."""

    def __init__(self, shared_dir: Path) -> None:
        """Args:
        shared_dir: the private folder of the gateway.
        """
        self._folder = shared_dir / "console"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._capturing = self._folder / "capturing"
        self._captures = self._folder / "captures"

    @property
    def is_capturing(self) -> bool:
        """Whether exchanges are captured for the console."""
        return self._capturing.exists()

    def switch_captures(self, is_on: bool) -> None:
        """Begins or ends to capture exchanges for the console; at the end, the captures are deleted."""
        if is_on:
            self._capturing.touch(mode=0o600)
        else:
            self._capturing.unlink(missing_ok=True)
            self.delete_captures()

    def delete_captures(self) -> None:
        """Deletes the captures for the console."""
        shutil.rmtree(self._captures, ignore_errors=True)

    def capture_config(self) -> CaptureConfig:
        """Returns where exchanges are captured for the console."""
        return CaptureConfig(dir=str(self._captures), max_exchanges=MAX_EXCHANGES, max_bytes=MAX_TOTAL_BYTES)

    def own_socket(self) -> Path:
        """Returns the path at which this process receives the rows of the others; paths of sockets are short."""
        return self._folder / f"w-{os.getpid()}"

    def other_sockets(self) -> frozenset[Path]:
        """Returns the paths at which other processes receive rows."""
        return frozenset(self._folder.glob("w-*")) - {self.own_socket()}


class RowSender:
    """Sends the rows of this process to processes in which a page watches."""

    def __init__(self, folder: ConsoleFolder, feed: LiveFeed, set_capturing: Callable[[bool], None]) -> None:
        """Args:
        folder: the files of the console.
        feed: the exchanges of this process.
        set_capturing: begins or ends to capture exchanges in this process.
        """
        self._folder, self._feed, self._set_capturing = folder, feed, set_capturing
        self._is_capturing = False
        self._wake = threading.Event()

    def start(self) -> None:
        """Starts the thread, which ends with the process."""
        threading.Thread(target=self._run, name="dragoman-console", daemon=True).start()

    def _run(self) -> None:
        while not self._wake.wait(LOOK_S):
            try:
                self.look()
            except OSError as error:
                log.warning("the console of another process gets no rows: %s", error.strerror or error)
            except Exception:
                log.exception("bug: the console of another process gets no rows")

    def look(self) -> None:
        """Does what the files ask for: returns when no other process watches any more.

        Raises:
            OSError: the folder cannot be read.
        """
        self._follow_switch()
        if not self._folder.other_sockets():
            return
        changes = RowChanges(self._feed)
        early = changes.ended_since(time.time() - MISSED_S)
        with self._feed.watch() as watcher, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            while paths := self._folder.other_sockets():
                rows, early = [*early, *changes.take(watcher)], []
                for data in _datagrams(rows):
                    _send(sender, data, paths)
                self._follow_switch()
                if self._wake.wait(SEND_S):
                    return

    def _follow_switch(self) -> None:
        if self._folder.is_capturing != self._is_capturing:
            self._set_capturing(not self._is_capturing)
            self._is_capturing = not self._is_capturing


def _send(sender: socket.socket, data: bytes, paths: frozenset[Path]) -> None:
    """Sends a datagram to each path, except where the queue is full: a page that is too slow lacks rows."""
    for path in paths:
        try:
            sender.sendto(data, str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # its process has ended without removing it
        except OSError:
            continue


def _datagrams(rows: list[TrafficRow]) -> Iterator[bytes]:
    for begin in range(0, len(rows), MAX_DATAGRAM_ROWS):
        yield msgspec.json.encode(rows[begin : begin + MAX_DATAGRAM_ROWS])


class RowReceiver:
    """Receives the rows of the other processes while a page watches in this one."""

    def __init__(self, folder: ConsoleFolder, receive: Callable[[list[TrafficRow]], None]) -> None:
        """Args:
        folder: the files of the console.
        receive: receives rows.
        """
        self._folder, self._receive = folder, receive
        self._open = 0
        self._opened = ExitStack()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Receives rows within the block, in this event loop; blocks may overlap."""
        self._open += 1
        try:
            if self._open == 1:
                self._listen()
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._opened.close()

    def _listen(self) -> None:
        path = self._folder.own_socket()
        path.unlink(missing_ok=True)
        receiver = self._opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._opened.callback(path.unlink, missing_ok=True)
        receiver.setblocking(False)
        receiver.bind(str(path))
        loop = asyncio.get_running_loop()
        loop.add_reader(receiver, self._on_readable, receiver)
        self._opened.callback(loop.remove_reader, receiver)

    def _on_readable(self, receiver: socket.socket) -> None:
        with suppress(BlockingIOError, msgspec.DecodeError):
            while data := receiver.recv(_MAX_DATAGRAM_BYTES):
                self._receive(msgspec.json.decode(data, type=list[TrafficRow]))
