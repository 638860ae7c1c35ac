"""Chat Completions of a server behind, to events.

Read as the many servers of this API send it, streamed or whole (core/assemble.py has what calls may look like):

    thoughts      `reasoning_content` (vLLM, SGLang, llama.cpp, DeepSeek), `reasoning` (Ollama, OpenRouter, gpt-oss in
                  vLLM), `thinking`, or blocks of type `thinking` in `content` (Mistral)
    arguments     a string, an object, null
    function_call of 2023, as a call
    finish        `eos`, `eos_token`, `end_turn`, `max_tokens`, `tool_use`, `function_call` too; `error` is a Failure;
                  any other word is "stop", with a warning
    stop_reason   of vLLM: which of the stop strings ended the reply
    usage         in a chunk of its own, on the last or on every one
    the end       `[DONE]`, or the stream's end where a finish reason came before; without one the stream broke off

A `message` in a chunk is read only where there is no `delta`: some servers repeat the whole in the last one.
Of several choices the first is read, with a warning.

Source: https://platform.openai.com/docs/api-reference/chat/streaming (2026-11);
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html, https://docs.mistral.ai/capabilities/reasoning,
https://openrouter.ai/docs/use-cases/reasoning-tokens (2026-11).
"""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from dragoman.core.contracts import Turn
from dragoman.core.errors import UpstreamError, quote
from dragoman.core.names import NAME_FORM
from dragoman.core.shape import Cursor, Fields
from dragoman.core.upstream import NOT_THAT, UpstreamReader, assembler
from dragoman.core.values import FinishReason, Request, Usage
from dragoman.dialects.openai_chat.requests_out import NAME

_FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_NO_EVENT: Final = ("reasoning_details", "annotations", "audio", "images")
"""What servers say beside the words (OpenRouter, search models), and nothing here can pass on."""
_LEGACY: Final = -1
"""The index of a `function_call`, of which a reply has one."""


class _Function(Struct, forbid_unknown_fields=True):
    arguments: str
    name: None = None


class _Piece(Struct, forbid_unknown_fields=True):
    """More of a call that is open."""

    index: int
    function: _Function
    id: None = None
    type: str | None = None


class _Delta(Struct, forbid_unknown_fields=True):
    content: str | None = None
    role: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    function_call: None = None
    tool_calls: tuple[_Piece] | None = None


class _Choice(Struct, forbid_unknown_fields=True):
    index: Literal[0]
    delta: _Delta
    finish_reason: None = None
    logprobs: None = None
    stop_reason: None = None


class _Chunk(Struct):
    """What most chunks are, read in a tenth of the time; nothing else fits into it."""

    object: Literal["chat.completion.chunk"]
    choices: tuple[_Choice]
    usage: None = None
    error: None = None


_chunk: Final = msgspec.json.Decoder(_Chunk).decode


class Reader(UpstreamReader):
    """One answer."""

    __slots__ = ("_reason", "_several", "_stop")

    def __init__(self, request: Request, turn: Turn) -> None:
        super().__init__(assembler(request, turn, NAME, NAME_FORM), self._chunk, self._chunk, self._end)
        self._reason: FinishReason | None = None
        self._stop = ""
        self._several = False

    def _end(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason, self._stop)
        return True

    def _quick(self, data: bytes) -> bool:
        try:
            said = _chunk(data).choices[0].delta
        except NOT_THAT:
            return False
        self._out.start()
        if said.reasoning_content:
            self._out.reasoning(said.reasoning_content)
        if said.content:
            self._out.text(said.content)
        for piece in said.tool_calls or ():
            self._out.call(piece.index, "", "", piece.function.arguments)
        return True

    def _chunk(self, fields: Fields) -> None:
        self._out.start()
        for choice in fields.items("choices"):
            self._choice(choice.fields())
        if (usage := fields.take("usage")) is not None:
            self._out.usage(_usage(usage.fields()))

    def _choice(self, choice: Fields) -> None:
        if (index := choice.take("index")) is not None and index.integer() > 0:
            if not self._several:
                self._out.warn("dropped_choice", "the server sent more than one choice; only the first is read")
            self._several = True
            return
        if choice.take("logprobs") is not None:
            self._out.lost("logprobs")
        said = choice.take("delta") or choice.take("message")
        if said is not None:
            self._said(said.fields())
        stop, reason = choice.take("stop_reason"), choice.take("finish_reason")
        if reason is not None and reason.string():
            self._finished(reason.string(), stop)

    def _finished(self, reason: str, stop: Cursor | None) -> None:
        if reason == "error":
            raise UpstreamError("the server broke the reply off with finish_reason 'error'")
        if reason not in _FINISH:
            self._out.warn("unknown_finish", f"the server ended with {quote(reason)}; it is taken for 'stop'")
        self._reason = _FINISH.get(reason, "stop")
        if self._reason == "stop" and stop is not None and stop.kind == "string" and stop.string():
            self._reason, self._stop = "stop_sequence", stop.string()

    def _said(self, said: Fields) -> None:
        for name in _NO_EVENT:
            self._lose(said, name)
        thoughts = [said.take(name) for name in ("reasoning_content", "reasoning", "thinking")]
        self._out.reasoning(next((t.string() for t in thoughts if t is not None and t.kind == "string"), ""))
        if (content := said.take("content")) is not None:
            self._content(content)
        self._out.refusal(said.string("refusal"))
        for n, call in enumerate(said.items("tool_calls")):
            self._call(call.fields(), apart=n > 0)
        if (legacy := said.take("function_call")) is not None:
            function = legacy.fields()
            self._out.call(_LEGACY, "", function.string("name"), _arguments(function.take("arguments")))

    def _lose(self, fields: Fields, name: str) -> None:
        found = fields.peek(name)
        if found is not None and found.text not in ("[]", "{}"):
            self._out.lost(name)

    def _content(self, content: Cursor) -> None:
        if content.kind == "string":
            self._out.text(content.string())
            return
        for item in content.items():
            block = item.fields()
            match block.need("type").string():
                case "text":
                    self._out.text(block.string("text"))
                case "thinking":
                    self._thinking(block.need("thinking"))
                case kind:
                    self._out.warn("unknown_block", f"a block of type {quote(kind)} was dropped", item.text)

    def _thinking(self, thoughts: Cursor) -> None:
        texts = [thoughts] if thoughts.kind == "string" else [t.fields().need("text") for t in thoughts.items()]
        for text in texts:
            self._out.reasoning(text.string())

    def _call(self, call: Fields, apart: bool) -> None:
        self._lose(call, "extra_content")
        index, id, function = call.take("index"), call.string("id"), call.take("function")
        inner = function.fields() if function is not None else call
        name, arguments = inner.string("name"), _arguments(inner.take("arguments"))
        self._out.call(None if index is None else index.integer(), id, name, arguments, apart=apart)


def _arguments(found: Cursor | None) -> str:
    if found is None:
        return ""
    return found.text if found.kind == "object" else found.string()


def _usage(counts: Fields) -> Usage:
    read, written = counts.take("prompt_tokens_details"), counts.take("completion_tokens_details")
    return Usage(
        input_tokens=counts.integer("prompt_tokens") or 0,
        output_tokens=counts.integer("completion_tokens") or 0,
        cached_input_tokens=(read.fields().integer("cached_tokens") if read else 0) or 0,
        reasoning_tokens=(written.fields().integer("reasoning_tokens") if written else 0) or 0,
    )
