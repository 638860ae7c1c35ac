"""A model that is a program: it reads the conversation as one line of JSON, and writes its text until it ends.

    [{"role": "user", "content": "Hi"}]  →  standard input
    Hello!                               ←  standard output

It knows nothing of tools: they stand in the conversation, and calls are read from its text. One process an
answer, which ends with it, whichever way it ends.

Source: docs/adding-a-backend.md (2026-11), whose example this is.
"""

import asyncio
import codecs
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence

from dragoman import formats
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import Failure, Finish, Start
from dragoman.core.identifiers import call_ids
from dragoman.core.messages import Request
from dragoman.parsing.reader_options import READER_REPAIRS, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.prompting.chat_renderer import render_chat
from dragoman.text.stop_strings import StopStrings

PIECE_BYTES = 64
"""Read at once; what is there sooner is taken sooner."""


class Pipe(Backend):
    """One model, which is a command."""

    def __init__(self, name: str, command: Sequence[str], format: str = "hermes") -> None:
        self._model = ServedModel(name)
        self._command = command
        self._format = formats.get(format)
        self._active = 0

    def models(self) -> Sequence[ServedModel]:
        """The one."""
        return (self._model,)

    def health(self) -> Mapping[str, object]:
        """For /health."""
        return {"backend": "pipe", "model": self._model.id, "ready": True, "active": self._active}

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """The answer; closing this ends the program.

        Raises: BackendUnavailableError: it could not be started.
        """
        reader, stops = self._reader(request, context), StopStrings(request.stop)
        async with self._running() as process:
            assert process.stdin is not None
            turns = [{"role": said.role, "content": said.text} for said in render_chat(request, self._format)]
            process.stdin.write(json.dumps(turns).encode() + b"\n")
            process.stdin.close()
            yield [Start(context.id, request.model, context.created)]
            async for text in _pieces(process):
                if events := stops.feed(reader.feed(text)):
                    yield events
                if reader.finished or stops.found:
                    break
            else:
                if status := await process.wait():
                    yield [Failure(BackendUnavailableError(f"the model's program ended with {status}"))]
                    return
        rest = [] if stops.found else [*stops.feed(reader.close()), *stops.close()]
        yield [*rest, Finish("stop_sequence" if stops.found else "stop", stops.found)]

    def _reader(self, request: Request, context: ExchangeContext) -> ReplyReader:
        tools = () if request.tool_choice.mode == "none" else request.tools
        options = ReaderOptions(
            lenient=bool(tools),
            used_ids=call_ids(request),
            enabled_repairs=READER_REPAIRS.difference(context.disabled_repairs),
        )
        return ReplyReader(self._format, tools, new_id=context.new_id, options=options)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """The program, with nothing of the environment but where programs are."""
        pipe = asyncio.subprocess.PIPE
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        try:
            process = await asyncio.create_subprocess_exec(*self._command, env=environment, stdin=pipe, stdout=pipe)
        except OSError as e:
            raise BackendUnavailableError(f"cannot start {self._command[0]}: {e.strerror}") from None
        self._active += 1
        try:
            yield process
        finally:
            self._active -= 1
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _pieces(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """The program's text as it comes; a character may come in two pieces."""
    assert process.stdout is not None
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while data := await process.stdout.read(PIECE_BYTES):
        yield decode(data)
