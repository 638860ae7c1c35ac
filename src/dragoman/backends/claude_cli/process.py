"""One process of the claude CLI: lines of JSON in, lines of JSON out, and its certain end.

It is the head of a process group of its own. What it writes for the time of its life, sockets and the like, goes to a
folder of its own that is removed with it. Ended it is by SIGTERM, upon which it takes its leave of its files, and
SIGKILL where that does not help, both to the whole group; a `Reaper` does the same where this program itself was
killed. On Windows, which has neither groups nor SIGTERM, it is ended at once, and alone.
"""

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dragoman.backends.claude_cli.reaper import Reaper
from dragoman.backends.embedded import weights
from dragoman.core.errors import BackendUnavailableError, UpstreamTimeoutError
from dragoman.off_loop import off_loop

log = logging.getLogger("dragoman.backends.claude_cli")

LINE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Of what it says in one line; a whole answer stays well below."""
_POLITE_S: Final = 2.0
"""Time to go after SIGTERM; it needs a tenth of that."""
_LAST_S: Final = 0.5
"""Time for what it said last to be read; it stands in a pipe already."""
_WORDS: Final = 20
"""Lines of its complaints that are kept."""
_TEMPORARY: Final = ("TMPDIR", "TEMP", "TMP")
"""What names the folder for temporary files, on one system or another."""

_encode = msgspec.json.Encoder().encode
_NONE: Final = msgspec.Raw(b"null")


class OutputLine(msgspec.Struct, frozen=True):
    """What it says, as far as anybody here looks at it."""

    type: str = ""
    subtype: str = ""
    event: msgspec.Raw = _NONE
    """Of a `stream_event`: an event of the Messages API, as it came."""
    message: msgspec.Raw = _NONE
    request_id: str = ""
    request: msgspec.Raw = _NONE
    response: msgspec.Raw = _NONE
    tools: msgspec.Raw = _NONE
    mcp_servers: msgspec.Raw = _NONE
    rate_limit_info: msgspec.Raw = _NONE
    is_error: bool = False
    error: msgspec.Raw = _NONE
    """Of an `assistant` message that the CLI wrote itself: the word for what went wrong."""
    error_status: msgspec.Raw = _NONE
    result: msgspec.Raw = _NONE
    api_error_status: msgspec.Raw = _NONE
    retry_delay_ms: msgspec.Raw = _NONE
    total_cost_usd: msgspec.Raw = _NONE
    parent_tool_use_id: str | None = None


_line: Final = msgspec.json.Decoder(OutputLine).decode
_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_COLOURS: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))|\xef\xbb\xbf")
"""Escapes for terminals (ECMA-48 control sequences, and the operating system commands of xterm), a byte order mark."""


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """Its output ends when it does, though a process that it left behind may hold it still."""

    def process_exited(self) -> None:
        super().process_exited()
        asyncio.get_running_loop().call_later(_LAST_S, self._close)

    def _close(self) -> None:
        transport: asyncio.SubprocessTransport | None = getattr(self, "_transport", None)
        for number in (1, 2):
            if transport is not None and (pipe := transport.get_pipe_transport(number)) is not None:
                pipe.close()


class Process:
    """One that runs."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        child: asyncio.subprocess.Process,
        folder: str,
        keeper: Reaper,
    ) -> None:
        self._transport, self._child, self._folder, self._keeper = transport, child, folder, keeper
        self._complaints: deque[str] = deque(maxlen=_WORDS)
        self._listening = asyncio.ensure_future(self._listen())
        self._ending: asyncio.Task[None] | None = None
        self.over = asyncio.ensure_future(child.wait())
        """Done when it has come to its end, by itself or not."""

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], keeper: Reaper) -> "Process":
        """One of this command line.

        Raises: BackendUnavailableError: it cannot be started.
        """
        folder = ""
        try:
            folder = tempfile.mkdtemp(prefix="dragoman-")
            await keeper.start()
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.subprocess_exec(
                lambda: _Pipes(LINE_LIMIT_BYTES, loop),
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=working_directory(),
                env={**environment, **dict.fromkeys(_TEMPORARY, folder)},
                start_new_session=True,
            )
        except BaseException as e:  # a client that has gone, too
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(e, OSError):
                log.warning("cannot start %s: %s", command[0], e)
                raise BackendUnavailableError(f"cannot start claude: {(e.strerror or str(e)).lower()}") from None
            raise
        keeper.watch(transport.get_pid(), folder)
        return cls(transport, asyncio.subprocess.Process(transport, protocol, loop), folder, keeper)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._child.pid

    @property
    def runs(self) -> bool:
        """It has not come to its end."""
        return self._child.returncode is None and self._ending is None

    async def say(self, *lines: object, silence_s: float, large: bool = False) -> None:
        """Tell it these, a line each; that it has gone is found by whoever listens. `large` ones are made in a thread.

        Raises: UpstreamTimeoutError: it did not take them in for so long.
        """
        assert self._child.stdin is not None
        data = await off_loop(large, lambda: b"".join(map(one_line, lines)))
        try:
            async with asyncio.timeout(silence_s):
                self._child.stdin.write(data)
                await self._child.stdin.drain()
        except TimeoutError:
            raise UpstreamTimeoutError(f"claude took nothing in for {silence_s:g} s") from None
        except ConnectionError:
            pass

    async def hear(self, silence_s: float) -> OutputLine:
        """What it says next; whatever is none of its lines is passed over.

        Raises: UpstreamTimeoutError: nothing for so long. BackendUnavailableError: it has ended, or a line of an
            answer is broken.
        """
        assert self._child.stdout is not None
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    said = await self._child.stdout.readline()
            except TimeoutError:
                raise UpstreamTimeoutError(f"claude said nothing for {silence_s:g} s") from None
            except ValueError:
                raise BackendUnavailableError(f"claude said a line of over {LINE_LIMIT_BYTES} bytes") from None
            if not said.endswith(b"\n"):
                raise BackendUnavailableError(f"claude ended before its answer did: {await self._last_words()}")
            if (line := _read(said)) is not None:
                return line

    async def _last_words(self) -> str:
        try:
            async with asyncio.timeout(_POLITE_S):
                status = await self._child.wait()
                await self._listening
        except TimeoutError:
            return "it closed its output"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"{how}{': ' if self._complaints else ''}{self._complaints[-1] if self._complaints else ''}"

    async def _listen(self) -> None:
        """Take its complaints, which would make it wait if nobody did."""
        assert self._child.stderr is not None
        with contextlib.suppress(ValueError):
            async for said in self._child.stderr:
                if text := said.decode("utf-8", "replace").strip():
                    log.debug("claude complains: %s", text)
                    self._complaints.append(text[:300])

    def end(self, *, at_once: bool = False) -> "asyncio.Task[None]":
        """Have it ended, and its group; waiting for that is up to the caller.

        `at_once`: before it does another thing.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
            if at_once:
                kill(self._child.pid)
        return self._ending

    async def _end(self) -> None:
        for end in (_ask_to_end, kill):
            end(self._child.pid)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLITE_S):
                    await self._child.wait()
                break
        await self._child.wait()
        kill(self._child.pid)  # whom it left behind
        self._keeper.forget(self._child.pid)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._transport.close()  # else its pipes are closed by chance
        shutil.rmtree(self._folder, ignore_errors=True)


def one_line(said: object) -> bytes:
    """What is said, as one line, whatever JSON of a client's is in it as it came.

    A line of its own in that would be told to the CLI as ours: it takes orders to run programs.
    """
    return msgspec.json.format(_encode(said), indent=-1) + b"\n"


def _read(said: bytes) -> OutputLine | None:
    """The line; None: it is none of its, as others may write to its output.

    Raises: BackendUnavailableError: it is one of an answer, of which a part would be missing.
    """
    for text in (said, _COLOURS.sub(b"", said)):
        with contextlib.suppress(*_BROKEN):
            return _line(text)
    if b'"stream_event"' in said:
        raise BackendUnavailableError("claude said a broken line in the middle of its answer")
    return None


def working_directory() -> Path:
    """Where all of them work: an empty folder, the same each time. Raises: OSError: there can be none.

    They are not to find anything there, and they name it to the model, whose service keeps the beginnings of
    conversations; and in its home the CLI keeps a folder for each that it was ever started in.
    """
    folder = weights.home() / "claude"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


if sys.platform == "win32":

    def kill(pid: int) -> None:
        """End it, where it has not come to its end."""
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)

    _ask_to_end = kill

else:

    def _ask_to_end(pid: int) -> None:
        _signal(pid, signal.SIGTERM)

    def kill(pid: int) -> None:
        """End all of its group that have not come to their end."""
        _signal(pid, signal.SIGKILL)

    def _signal(group: int, sign: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, sign)
