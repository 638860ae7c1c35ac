"""A backend that replays recorded model text through the real reader, without the model.

    backend = RecordedBackend.of(Path("recording.jsonl"))          # then Gateway([backend]), as any other
    backend = RecordedBackend("my-model", [RecordedReply(asked="weather in Paris", text='{"name": "get_weather", …}')])

A recording is JSON lines: first its description, then the responses; fields not named here are notes.

    {"model": "qwen2.5-coder-1.5b", "format": "hermes", "date": "2026-11-21"}
    {"asked": "weather in Paris", "text": "{\\"name\\": \\"get_weather\\", …}", "finish": "stop"}

The response depends only on the question, so clients may repeat requests or send several at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from dragoman import formats
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.errors import BackendUnavailableError, ConfigError, quote
from dragoman.core.events import Finish, Start, UsageUpdate
from dragoman.core.identifiers import call_ids
from dragoman.core.messages import Request, Text, ToolResult, Usage
from dragoman.parsing.reader_options import READER_REPAIRS, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.text.stop_strings import StopStrings


class RecordedReply(msgspec.Struct, frozen=True):
    """One recorded response."""

    asked: str
    """Text in the user's last message or tool results; if several match, the longest one decides."""
    text: str
    """The model's unchanged text."""
    finish: Literal["stop", "length"] = "stop"
    """"length": the response was truncated."""


class _Header(msgspec.Struct, frozen=True):
    model: str
    format: str = "hermes"


class RecordedBackend(Backend):
    """The recorded responses of one model."""

    def __init__(
        self, model: str, answers: Iterable[RecordedReply], format: str = "hermes", piece_chars: int = 4
    ) -> None:
        self._model = ServedModel(model)
        self._answers = sorted(answers, key=lambda answer: -len(answer.asked))
        self._format = formats.get(format)
        self._piece_chars = piece_chars

    @classmethod
    def of(cls, path: Path, piece_chars: int = 4) -> "RecordedBackend":
        """Reads the responses from a file; they are sent in deltas of about one token.

        Raises: ConfigError: there is none, or it is no recording.
        """
        try:
            head, *lines = path.read_bytes().splitlines()
            made = msgspec.json.decode(head, type=_Header)
            return cls(
                made.model, [msgspec.json.decode(x, type=RecordedReply) for x in lines], made.format, piece_chars
            )
        except OSError as e:
            raise ConfigError(f"cannot read the recording {path}: {e.strerror}") from None
        except (msgspec.DecodeError, ValueError) as e:
            raise ConfigError(f"{path} is no recording: {e}") from None

    def models(self) -> Sequence[ServedModel]:
        """The recorded model."""
        return (self._model,)

    def health(self) -> Mapping[str, object]:
        """For /health."""
        return {"backend": "replay", "model": self._model.id, "ready": True}

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Streams the recorded response.

        Raises: BackendUnavailableError: the recording has none.
        """
        answer = self._answer(request)
        has_tools = any(t.kind == "function" for t in request.tools) and request.tool_choice.mode != "none"
        tools = request.tools if has_tools else ()
        options = ReaderOptions(
            lenient=has_tools,
            used_ids=call_ids(request),
            enabled_repairs=READER_REPAIRS.difference(context.disabled_repairs),
        )
        reader = ReplyReader(self._format, tools, new_id=context.new_id, options=options)
        stops = StopStrings(request.stop)
        yield [Start(context.id, request.model, context.created)]
        pieces = 0
        for at in range(0, len(answer.text), self._piece_chars):
            pieces += 1
            if events := stops.feed(reader.feed(answer.text[at : at + self._piece_chars])):
                yield events
            if reader.finished or stops.found:
                break
        rest = [] if stops.found else [*stops.feed(reader.close(answer.finish)), *stops.close()]
        usage = UsageUpdate(Usage(output_tokens=pieces))
        yield [*rest, usage, Finish("stop_sequence" if stops.found else answer.finish, stops.found)]

    def _answer(self, request: Request) -> RecordedReply:
        asked = _last_words(request)
        for answer in self._answers:
            if answer.asked in asked:
                return answer
        raise BackendUnavailableError(f"the recording has no answer to {quote(asked)}")


def _last_words(request: Request) -> str:
    """The last text of the user or of a tool."""
    said = next((m for m in reversed(request.messages) if m.role in ("user", "tool")), request.messages[-1])
    parts = [p for part in said.parts for p in (part.parts if isinstance(part, ToolResult) else (part,))]
    return "\n".join(p.text for p in parts if isinstance(p, Text))
