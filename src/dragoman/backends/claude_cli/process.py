"""One process of the claude CLI: lines of JSON in, lines of JSON out, and its certain end.

It is the head of a process group of its own. What it writes for the time of its life, sockets and the like, goes to a
folder of its own that is removed with it. Ended it is by SIGTERM, upon which it takes its leave of its files, and
SIGKILL where that does not help, both to the whole group; a `Keeper` does the same where this program itself was
killed. On Windows, which has neither groups nor SIGTERM, it is ended at once, and alone.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.backends import weights
from dragoman.backends.claude_cli.keeper import Keeper
from dragoman.core.errors import BackendError, SilenceError

log = logging.getLogger("dragoman.backends.claude_cli")

LINE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Of what it says in one line; a whole answer stays well below."""
_POLITE_S: Final = 2.0
"""Time to go after SIGTERM; it needs a tenth of that."""
_WORDS: Final = 20
"""Lines of its complaints that are kept."""
_TEMPORARY: Final = ("TMPDIR", "TEMP", "TMP")
"""What names the folder for temporary files, on one system or another."""

_encode = msgspec.json.Encoder().encode
_NONE: Final = msgspec.Raw(b"null")


class Line(msgspec.Struct, frozen=True):
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


_line: Final = msgspec.json.Decoder(Line).decode


class Process:
    """One that runs."""

    def __init__(self, child: asyncio.subprocess.Process, folder: str, keeper: Keeper) -> None:
        self._child, self._folder, self._keeper = child, folder, keeper
        self._complaints: deque[str] = deque(maxlen=_WORDS)
        self._listening = asyncio.ensure_future(self._listen())
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], keeper: Keeper) -> "Process":
        """One of this command line.

        Raises: BackendError: it cannot be started.
        """
        folder = tempfile.mkdtemp(prefix="dragoman-")
        try:
            await keeper.start()
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=place(),
                env={**environment, **dict.fromkeys(_TEMPORARY, folder)},
                limit=LINE_LIMIT_BYTES,
                start_new_session=True,
            )
        except BaseException as e:  # a client that has gone, too
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(e, OSError):
                raise BackendError(f"cannot start {command[0]}: {(e.strerror or str(e)).lower()}") from None
            raise
        keeper.watch(child.pid, folder)
        return cls(child, folder, keeper)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._child.pid

    @property
    def runs(self) -> bool:
        """It has not come to its end."""
        return self._child.returncode is None and self._ending is None

    async def say(self, *lines: object) -> None:
        """Tell it these, a line each; that it has gone is found by whoever listens."""
        assert self._child.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._child.stdin.write(b"".join(_encode(line) + b"\n" for line in lines))
            await self._child.stdin.drain()

    async def hear(self, silence_s: float) -> Line:
        """What it says next; whatever is no JSON object is passed over.

        Raises: SilenceError: nothing for so long. BackendError: it has ended.
        """
        assert self._child.stdout is not None
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    said = await self._child.stdout.readline()
            except TimeoutError:
                raise SilenceError(f"claude said nothing for {silence_s:g} s") from None
            except ValueError:
                raise BackendError(f"claude said a line of over {LINE_LIMIT_BYTES} bytes") from None
            if not said:
                raise BackendError(f"claude ended before its answer did: {await self._last_words()}")
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return _line(said)

    async def _last_words(self) -> str:
        status = await self._child.wait()
        await self._listening
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

    def end(self) -> "asyncio.Task[None]":
        """Have it ended, and its group; waiting for that is up to the caller."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
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
        transport: Any = self._child._transport  # type: ignore[attr-defined]  # else its pipes are closed by chance
        transport.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def place() -> Path:
    """Where all of them work: an empty folder, the same each time.

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
