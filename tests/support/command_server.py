"""Runs command lines of dragoman in processes that are forked from one in which it is imported already.

A new Python process spends 0.3 s of CPU time on imports, which is most of what a short command takes, and a gateway
0.5 s more before it listens. What is run is the command itself: its own process, environment, folder, standard streams
and exit status.
"""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

IMPORTED: Final = (
    *("dragoman.server.run", "dragoman.cli._log_format", "dragoman.console.app", "dragoman.guard.guard", "uvloop"),
    *("dragoman.backends.http.backend", "dragoman.backends.embedded.backend", "dragoman.records.reports"),
)
"""What gateways and commands import when they start, next to formats, dialects and the commands themselves."""
START = (
    "-P",
    "-c",
    "import sys; sys.path[:] = sys.argv.pop(1).split('|'); from support import command_server as c; c.serve()",
)


class Command:
    """A command line that runs; has the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, pid: int, args: Sequence[str], connection: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._args = list(args)
        self._connection = connection

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status, or the signal's number below zero, once the process has ended.

        Raises:
            subprocess.TimeoutExpired: It still runs after `timeout` seconds.
        """
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = _received(self._connection, 4)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self._args, timeout or 0) from None
            self.returncode = int.from_bytes(status, signed=True)
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """Returns the exit status, or None while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class CommandServer:
    """The process that forks, for one test process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="commands-")
        self._address = os.path.join(self._folder.name, "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._address)
        listener.listen()
        with listener:
            self._process = subprocess.Popen(
                [sys.executable, *START, "|".join(sys.path), str(listener.fileno())],
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": self._folder.name},
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
            )
        atexit.register(self.close)

    def start(self, args: Sequence[str], env: Mapping[str, str], cwd: Path, *streams: int) -> Command:
        """Starts the command; `streams` are its standard output and error, or input, output and error."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._address)
            request = json.dumps({"args": list(args), "env": dict(env), "cwd": str(cwd)}).encode()
            socket.send_fds(connection, [len(request).to_bytes(4)], streams)
            connection.sendall(request)
            return Command(int.from_bytes(_received(connection, 4)), args, connection)
        except BaseException:
            connection.close()
            raise

    def run(
        self, args: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float, text: str
    ) -> "subprocess.CompletedProcess[str]":
        """Returns what the command wrote and its exit status; `text` is its standard input.

        Raises:
            subprocess.TimeoutExpired: It took longer, and was killed.
        """
        with (
            tempfile.TemporaryFile(dir=self._folder.name) as given,
            tempfile.TemporaryFile(dir=self._folder.name) as out,
            tempfile.TemporaryFile(dir=self._folder.name) as err,
        ):
            given.write(text.encode())
            given.seek(0)
            command = self.start(args, env, cwd, given.fileno(), out.fileno(), err.fileno())
            try:
                status = command.wait(timeout_s)
            except subprocess.TimeoutExpired:
                command.kill()
                command.wait()
                raise
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(list(args), status, *said)

    def close(self) -> None:
        """Ends the server; what it still runs is left alone."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


_started: list[CommandServer] = []
_starting = threading.Lock()


def run(
    args: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float, text: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Runs a command line with the shared server of this process; see `CommandServer.run`."""
    if sys.platform == "win32":
        argv = [sys.executable, "-m", "dragoman", *args]
        return subprocess.run(
            argv, env=dict(env), cwd=cwd, input=text, capture_output=True, text=True, timeout=timeout_s
        )
    return _server().run(args, env, cwd, timeout_s, text)


def start(args: Sequence[str], env: Mapping[str, str], cwd: Path, err: int) -> "Command | subprocess.Popen[bytes]":
    """Starts a command line by the one server of this process; its standard error is the file descriptor `err`."""
    if sys.platform == "win32":
        argv = [sys.executable, "-m", "dragoman", *args]
        return subprocess.Popen(argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stderr=err)
    return _server().start(args, env, cwd, 1, err)


def _server() -> CommandServer:
    with _starting:
        if not _started:
            _started.append(CommandServer())
    return _started[0]


def _received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the command server ended")
        data += piece
    return data


# The server


def serve() -> None:
    """Forks a command for each connection until standard input ends; returns in no process but by its end."""
    from dragoman import cli

    _import_all()
    listener = socket.socket(fileno=int(sys.argv.pop(1)))
    ended, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for each in (listener, ended, sys.stdin):
            selector.register(each, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if sys.stdin in ready:
                return
            if ended in ready:
                ended.recv(4096)
                _tell_ended(running)
            if listener in ready:
                connection, _ = listener.accept()
                length, files, _, _ = socket.recv_fds(connection, 4, 3)
                request = json.loads(_received(connection, int.from_bytes(length)))
                if (pid := os.fork()) == 0:
                    break
                for file in files:
                    os.close(file)
                connection.sendall(pid.to_bytes(4))
                running[pid] = connection
    for each in (listener, ended, connection, *running.values()):
        each.close()
    signal.set_wakeup_fd(-1)
    wakes.close()
    _become(request, files)
    try:
        status = cli.main(request["args"])
    except SystemExit as end:  # as after --help
        if not isinstance(end.code, int):
            raise
        status = end.code
    _end(status)


def _import_all() -> None:
    import gc
    import importlib

    from dragoman import cli, dialects, formats

    cli.parser()  # imports all commands
    formats.built_in()
    for name in dialects.names():
        dialects.get(name)
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()


def _end(status: int) -> NoReturn:
    """Ends the process as Python does, but leaves its memory to the system: to free each module takes 50 ms."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # Python reports it
    os._exit(status)


def _tell_ended(running: dict[int, socket.socket]) -> None:
    """Reports the exit status of every command that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as connection:
            connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def _become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Gives the forked process the environment, folder and streams of a new one."""
    for ignored in (signal.SIGCHLD, signal.SIGHUP):  # the latter is ignored where the tests run under nohup
        signal.signal(ignored, signal.SIG_DFL)
    given = [] if len(files) == 3 else [os.open(os.devnull, os.O_RDONLY)]
    for number, file in enumerate([*given, *files]):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["dragoman", *request["args"]]
