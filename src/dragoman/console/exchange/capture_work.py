"""Work on captures that takes time: in a thread, or for a large capture in a child process.

A thread blocks the event loop while a single step in C handles much data, such as decoding JSON of megabytes. So large
captures are handled in a process of their own (`capture_worker`), which ends with the work.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import IO, Final, Literal

import msgspec

from dragoman.console.exchange import captured_actions
from dragoman.console.exchange.client_code import client_code
from dragoman.console.exchange.conversation import PreviousRequest, ReadFile, find_previous
from dragoman.console.exchange.lanes.build_lanes import ExchangeLanes, build_lanes
from dragoman.console.exchange.views import ReplayStage
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError, RequestError
from dragoman.server.capture.files import Files
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.replay_backend import ChunkMode

log = logging.getLogger("dragoman.console")

LARGE_BYTES: Final = 1024 * 1024
"""Size of a capture from which a process handles it: in a thread it would block the event loop for over 20 ms."""
WORKER: Final = "dragoman.console.exchange.capture_worker"
MAX_ORDERS: Final = 16
"""Orders that are carried out or wait at the same time."""
_RETRY_S: Final = 5
_MAX_PROCESSES: Final = 2
_MAX_EARLIER: Final = 10
"""Earlier captures that the process gets, to find the previous request."""
_MAX_EARLIER_BYTES: Final = 64 * 1024 * 1024
_TIMEOUT_S: Final = 180.0
_VARIABLES: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT")
_HEAD: Final = "request.json"
_BODY: Final = "body"


class WorkOrder(msgspec.Struct, frozen=True):
    """What to do with a capture."""

    name: str
    files: Files
    operation: Literal["view", "replay", "case", "bundle", "code"]
    chunking: ChunkMode = "recorded"
    seed: int = 0
    language: str = ""
    gateway: str = ""
    earlier: dict[str, Files] = {}
    """Head and body of earlier captures, the newest first, for a process."""


class WorkResult(msgspec.Struct, frozen=True):
    """The result of an order."""

    lanes: ExchangeLanes | None = None
    previous_id: str = ""
    stages: tuple[ReplayStage, ...] = ()
    name: str = ""
    data: bytes = b""
    error: str = ""
    """What is wrong with the order; empty: nothing."""
    bug: str = ""
    """Type and place of an unexpected exception; empty: none."""


class CaptureWork:
    """Does the work of one gateway process, for at most two large captures at once; few orders wait for that."""

    def __init__(self) -> None:
        self._count = 0
        self._free = asyncio.Semaphore(_MAX_PROCESSES)

    async def run(self, order: WorkOrder, earlier: Callable[[], tuple[Sequence[str], ReadFile]]) -> WorkResult:
        """Returns the result.

        Args:
            order: The order.
            earlier: Returns the request ids of earlier captures, the newest first, and what reads a file of one.

        Raises:
            RequestError: The order cannot be carried out.
            ConfigError: The process that reads the capture ended early.
            BackendUnavailableError: Too many orders are being carried out.
        """
        if self._count >= MAX_ORDERS:
            raise BackendUnavailableError(
                f"expected at most {MAX_ORDERS} views and actions of exchanges at once, got more; try again later",
                retry_after_s=_RETRY_S,
            )
        self._count += 1
        try:
            result = await self._result(order, earlier)
        finally:
            self._count -= 1
        if result.bug:
            log.error("cannot carry out %s of the capture %s: %s", order.operation, order.name, result.bug)
        if result.error:
            raise RequestError(result.error)
        return result

    async def _result(self, order: WorkOrder, earlier: Callable[[], tuple[Sequence[str], ReadFile]]) -> WorkResult:
        if sum(map(len, order.files.values())) < LARGE_BYTES:
            return await asyncio.to_thread(_carry_out_with, order, earlier)
        async with self._free:
            order = msgspec.structs.replace(order, earlier=await asyncio.to_thread(_earlier_files, order, earlier))
            return await _in_process(order)


def _carry_out_with(order: WorkOrder, earlier: Callable[[], tuple[Sequence[str], ReadFile]]) -> WorkResult:
    ids, read = earlier() if order.operation in ("view", "replay") else ((), _no_file)
    return carry_out(order, ids, read)


def carry_out(order: WorkOrder, ids: Sequence[str] = (), read: ReadFile | None = None) -> WorkResult:
    """Returns the result of an order. Runs event loops, so the caller must be in a thread without one.

    Args:
        order: The order.
        ids: The request ids of earlier captures, the newest first; empty: those of the order.
        read: Reads a file of an earlier capture; None: those of the order.
    """
    capture = LoadedCapture(order.name, order.files)
    find = read or (lambda id, file: order.earlier.get(id, {}).get(file))
    try:
        match order.operation:
            case "view":
                previous = _previous(capture, ids or list(order.earlier), find)
                lanes = build_lanes(capture, previous.body if previous else None)
                return WorkResult(lanes=lanes, previous_id=previous.id if previous else "")
            case "replay":
                previous = _previous(capture, ids or list(order.earlier), find)
                body = previous.body if previous else None
                stages, lanes = captured_actions.replay(capture, order.chunking, order.seed, body)
                return WorkResult(lanes=lanes, previous_id=previous.id if previous else "", stages=tuple(stages))
            case "case":
                name, text = captured_actions.case_file(capture)
                return WorkResult(name=name, data=text.encode())
            case "bundle":
                return WorkResult(data=captured_actions.redacted_bundle(capture))
            case "code":
                return WorkResult(data=client_code(capture, order.language, order.gateway).encode())
    except DragomanError as error:
        return WorkResult(error=str(error))
    except Exception as error:  # noqa: BLE001 a stranger's request may be anything; the page shows what it can
        name = type(error).__name__
        message = f"expected a capture that can be read, got {name}; the log has the place, and /body has the request"
        return WorkResult(error=message, bug=f"{name} at {_place(error)}")


def _place(error: Exception) -> str:
    """Returns file and line of an exception; its text may have content of the capture."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename.rpartition('/dragoman/')[2]}:{frame.lineno}"


def _previous(capture: LoadedCapture, ids: Sequence[str], read: ReadFile) -> PreviousRequest | None:
    body = capture.files.get(_BODY, b"")
    return find_previous(capture.files.get(_HEAD, b""), body, ids, read) if body else None


def _no_file(id: str, file: str) -> None:
    return None


def _earlier_files(order: WorkOrder, earlier: Callable[[], tuple[Sequence[str], ReadFile]]) -> dict[str, Files]:
    """Returns head and body of the newest earlier captures."""
    found: dict[str, Files] = {}
    if order.operation not in ("view", "replay"):
        return found
    ids, read = earlier()
    size = 0
    for id in ids[:_MAX_EARLIER]:
        files = {name: data for name in (_HEAD, _BODY) if (data := read(id, name))}
        size += sum(map(len, files.values()))
        if size > _MAX_EARLIER_BYTES:
            break
        found[id] = files
    return found


async def _in_process(order: WorkOrder) -> WorkResult:
    """Returns the result of a child process.

    Raises:
        ConfigError: The process failed, or took too long.
    """
    environment = {name: value for name, value in os.environ.items() if name in _VARIABLES}
    child = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-P", "-m", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C is handled by the parent
    )
    limit = asyncio.get_running_loop().call_later(_TIMEOUT_S, child.kill)
    try:
        written = await asyncio.to_thread(_talk, child, order)
    finally:
        limit.cancel()
        child.kill()  # it has ended, unless this was cancelled
    try:
        return msgspec.msgpack.decode(written, type=WorkResult)
    except msgspec.DecodeError:
        limit_s = f"within {_TIMEOUT_S:.0f} s"
        raise ConfigError(f"expected the capture to be read {limit_s}, but the process that reads it ended") from None


def _talk(child: "subprocess.Popen[bytes]", order: WorkOrder) -> bytes:
    """Writes the order, and returns what the process writes. Large files are written as they are, without copies."""
    groups = [order.files, *order.earlier.values()]
    names = [list(files) for files in groups]
    sizes = [[len(data) for data in files.values()] for files in groups]
    bare = msgspec.structs.replace(order, files={}, earlier={id: {} for id in order.earlier})
    head = msgspec.msgpack.encode(_Envelope(order=bare, names=names, sizes=sizes))
    with contextlib.suppress(BrokenPipeError), child:  # its end closes the pipe, which writes what is left
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(len(head).to_bytes(4, "big") + head)
        for data in (data for files in groups for data in files.values()):
            child.stdin.write(data)
        child.stdin.close()
        return child.stdout.read()
    return b""


class _Envelope(msgspec.Struct, frozen=True):
    """What the process reads first: the order without its files, and their names and sizes."""

    order: WorkOrder
    names: list[list[str]]
    sizes: list[list[int]]


def read_order(source: IO[bytes]) -> WorkOrder:
    """Returns the order that a process is sent.

    Args:
        source: Its standard input.
    """
    envelope = msgspec.msgpack.decode(source.read(int.from_bytes(source.read(4), "big")), type=_Envelope)
    own, *others = [
        {name: source.read(size) for name, size in zip(names, sizes, strict=True)}
        for names, sizes in zip(envelope.names, envelope.sizes, strict=True)
    ]
    earlier = dict(zip(envelope.order.earlier, others, strict=True))
    return msgspec.structs.replace(envelope.order, files=own, earlier=earlier)
