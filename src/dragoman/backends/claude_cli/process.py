"""One process of the claude CLI: lines of JSON in, lines of JSON out. It is always terminated.

It leads a process group of its own. Its temporary files and sockets are in a folder of its own, which is removed with
it. It is terminated by SIGTERM, which lets it clean up, then by SIGKILL, both sent to the group; a `Reaper` does the
same if the gateway itself was killed. On Windows, which has neither groups nor SIGTERM, the process alone is killed.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dragoman.backends.embedded import weights
from dragoman.core.errors import BackendUnavailableError, UpstreamTimeoutError
from dragoman.off_loop import off_loop
from dragoman.process_reaper.reaper import Reaper
from dragoman.text.json_cursor import NULL
from dragoman.wire.response_reader import DECODE_ERRORS

log = logging.getLogger("dragoman.backends.claude_cli")

LINE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Maximum length of an output line; a whole response is far shorter."""
_TERMINATE_S: Final = 2.0
"""Time to exit after SIGTERM; it needs 10 % of that."""
_LAST_OUTPUT_S: Final = 0.5
"""Time to read the last output after the exit; it is in a pipe already."""
_STDERR_LINES: Final = 20
"""Number of lines of standard error that are kept."""
_TEMP_VARIABLES: Final = ("TMPDIR", "TEMP", "TMP")
"""The variables for the folder of temporary files, on different systems."""

_encode = msgspec.json.Encoder().encode


class OutputLine(msgspec.Struct, frozen=True):
    """The fields of an output line that are used here."""

    type: str = ""
    subtype: str = ""
    event: msgspec.Raw = NULL
    """Of a `stream_event`: the unchanged event of the Messages API."""
    message: msgspec.Raw = NULL
    request_id: str = ""
    request: msgspec.Raw = NULL
    response: msgspec.Raw = NULL
    tools: msgspec.Raw = NULL
    mcp_servers: msgspec.Raw = NULL
    rate_limit_info: msgspec.Raw = NULL
    is_error: bool = False
    error: msgspec.Raw = NULL
    """Of an `assistant` message that the CLI wrote itself: the code of the error."""
    error_status: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    api_error_status: msgspec.Raw = NULL
    retry_delay_ms: msgspec.Raw = NULL
    total_cost_usd: msgspec.Raw = NULL
    parent_tool_use_id: str | None = None


_line: Final = msgspec.json.Decoder(OutputLine).decode
_COLOURS: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))|\xef\xbb\xbf")
"""Terminal escapes (ECMA-48 control sequences, and the operating system commands of xterm), and a byte order mark."""


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """Closes the output when the process exits, even if a process that it left behind still holds the pipe."""

    def process_exited(self) -> None:
        super().process_exited()
        asyncio.get_running_loop().call_later(_LAST_OUTPUT_S, self._close)

    def _close(self) -> None:
        transport: asyncio.SubprocessTransport | None = getattr(self, "_transport", None)
        for number in (1, 2):
            if transport is not None and (pipe := transport.get_pipe_transport(number)) is not None:
                pipe.close()


class Process:
    """A running process."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        child: asyncio.subprocess.Process,
        folder: str,
        reaper: Reaper,
    ) -> None:
        self._transport, self._child, self._folder, self._reaper = transport, child, folder, reaper
        self._complaints: deque[str] = deque(maxlen=_STDERR_LINES)
        self._listening = asyncio.ensure_future(self._listen())
        self._stopping: asyncio.Task[None] | None = None
        self.exited = asyncio.ensure_future(child.wait())
        """Done when the process has exited."""

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], reaper: Reaper) -> "Process":
        """Starts a process with this command line.

        Raises: BackendUnavailableError: it cannot be started.
        """
        folder = os.path.join(tempfile.gettempdir(), f"dragoman-{secrets.token_hex(8)}")
        try:
            await reaper.start()
            reaper.watch_folder(folder)
            os.mkdir(folder, mode=0o700)
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.subprocess_exec(
                lambda: _Pipes(LINE_LIMIT_BYTES, loop),
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=working_directory(),
                env={**environment, **dict.fromkeys(_TEMP_VARIABLES, folder)},
                start_new_session=True,
            )
        except BaseException as e:  # also if the client has disconnected
            shutil.rmtree(folder, ignore_errors=True)
            reaper.forget_folder(folder)
            if isinstance(e, OSError):
                log.warning("cannot start %s: %s", command[0], e)
                raise BackendUnavailableError(f"cannot start claude: {(e.strerror or str(e)).lower()}") from None
            raise
        reaper.watch_group(transport.get_pid())
        return cls(transport, asyncio.subprocess.Process(transport, protocol, loop), folder, reaper)

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running and is not being terminated."""
        return self._child.returncode is None and self._stopping is None

    async def send(self, *lines: object, stall_timeout_s: float, large: bool = False) -> None:
        """Sends each object as a line. A process that has exited is noticed by the reader of its output.

        Args:
            lines: objects to write as JSON.
            stall_timeout_s: seconds for the process to accept them.
            large: whether to encode them in a thread.

        Raises:
            UpstreamTimeoutError: the process did not accept them in time.
        """
        assert self._child.stdin is not None
        data = await off_loop(large, lambda: b"".join(map(encode_line, lines)))
        try:
            async with asyncio.timeout(stall_timeout_s):
                self._child.stdin.write(data)
                await self._child.stdin.drain()
        except TimeoutError:
            raise UpstreamTimeoutError(f"claude took nothing in for {stall_timeout_s:g} s") from None
        except ConnectionError:
            pass

    async def receive(self, stall_timeout_s: float) -> OutputLine:
        """Returns the next line; other output is skipped.

        Args:
            stall_timeout_s: seconds to wait.

        Raises:
            UpstreamTimeoutError: there was no line in time.
            BackendUnavailableError: the process has exited, or a line of a response is damaged.
        """
        assert self._child.stdout is not None
        while True:
            try:
                async with asyncio.timeout(stall_timeout_s):
                    raw = await self._child.stdout.readline()
            except TimeoutError:
                raise UpstreamTimeoutError(f"claude sent nothing for {stall_timeout_s:g} s") from None
            except ValueError:
                raise BackendUnavailableError(f"claude sent a line of over {LINE_LIMIT_BYTES} bytes") from None
            if not raw.endswith(b"\n"):
                raise BackendUnavailableError(f"claude ended before its answer did: {await self._exit_reason()}")
            if (line := _parse_line(raw)) is not None:
                return line

    async def _exit_reason(self) -> str:
        try:
            async with asyncio.timeout(_TERMINATE_S):
                status = await self._child.wait()
                await self._listening
        except TimeoutError:
            return "it closed its output"
        status_text = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"{status_text}{': ' if self._complaints else ''}{self._complaints[-1] if self._complaints else ''}"

    async def _listen(self) -> None:
        """Reads standard error, since the process would block if nothing did."""
        assert self._child.stderr is not None
        with contextlib.suppress(ValueError):
            async for line in self._child.stderr:
                if text := line.decode("utf-8", "replace").strip():
                    log.debug("claude complains: %s", text)
                    self._complaints.append(text[:300])

    def stop(self, *, at_once: bool = False) -> "asyncio.Task[None]":
        """Terminates the process and its group; the returned task is done when it has exited.

        Args:
            at_once: whether to send SIGKILL, so that it can do nothing more.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._terminate())
            if at_once:
                kill(self._child.pid)
        return self._stopping

    async def _terminate(self) -> None:
        for end in (_request_exit, kill):
            end(self._child.pid)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TERMINATE_S):
                    await self._child.wait()
                break
        await self._child.wait()
        kill(self._child.pid)  # what it left behind
        self._reaper.forget_group(self._child.pid)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._transport.close()  # else its pipes are closed at a random time
        shutil.rmtree(self._folder, ignore_errors=True)
        self._reaper.forget_folder(self._folder)


def encode_line(value: object) -> bytes:
    """Returns the object as one line of JSON, even if raw JSON of a client contains line breaks.

    A further line from the client's JSON would be a command to the CLI, which can run programs.
    """
    return msgspec.json.format(_encode(value), indent=-1) + b"\n"


def _parse_line(line: bytes) -> OutputLine | None:
    """Parses a line of output; None if it is not from the CLI, since other programs may write to the same output.

    Raises: BackendUnavailableError: a line of a response is damaged, so a part would be missing.
    """
    for text in (line, _COLOURS.sub(b"", line)):
        with contextlib.suppress(*DECODE_ERRORS):
            return _line(text)
    if b'"stream_event"' in line:
        raise BackendUnavailableError("claude said a broken line in the middle of its answer")
    return None


def working_directory() -> Path:
    """Returns the folder in which all processes run: an empty one, always the same.

    It must not contain files that the CLI would read. The CLI names the folder to the model, whose service caches
    prompt prefixes, and keeps a folder in its home for each folder in which it was ever started.

    Raises: OSError: the folder cannot be created.
    """
    folder = weights.cache_dir() / "claude"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


if sys.platform == "win32":

    def kill(pid: int) -> None:
        """Kills the process if it is still running."""
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)

    _request_exit = kill

else:

    def _request_exit(pid: int) -> None:
        _signal(pid, signal.SIGTERM)

    def kill(pid: int) -> None:
        """Kills all processes of the group that are still running."""
        _signal(pid, signal.SIGKILL)

    def _signal(group: int, sign: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, sign)
