"""Reads responses of upstream servers of Chat Completions.

Supported variants, streamed or whole (wire/call_assembler.py describes the variants of calls):

    reasoning     `reasoning_content` (vLLM, SGLang, llama.cpp, DeepSeek), `reasoning` (Ollama, OpenRouter, gpt-oss in
                  vLLM), `thinking`, or blocks of type `thinking` in `content` (Mistral); each a string, or an object or
                  list that contains the text
    arguments     a string, an object, null
    function_call of 2023, as a call
    finish        also `eos`, `eos_token`, `end_turn`, `max_tokens`, `tool_use`, `function_call`; `error` is a Failure;
                  any other value is "stop", with a warning; of two values, "length" is kept
    errors        also in `x_groq.error` (Groq) and in a choice (OpenRouter)
    stop_reason   of vLLM: the stop string that ended the reply
    usage         in a chunk of its own, in the last chunk or in every chunk
    the end       `[DONE]`, or the end of the stream after a finish reason; else the stream broke off

A `message` in a chunk is read only if there is no `delta`: some servers repeat the whole message in the last chunk.
Of several choices the first is read, with a warning.

Source: https://platform.openai.com/docs/api-reference/chat/streaming (2026-11);
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html, https://docs.mistral.ai/capabilities/reasoning,
https://openrouter.ai/docs/use-cases/reasoning-tokens (2026-11).
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import Struct

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import UpstreamError, quote
from dragoman.core.identifiers import NAME_FORM
from dragoman.core.messages import FinishReason, Request, Usage
from dragoman.core.response_details import ANNOTATIONS, LOGPROBS, PROGRESS
from dragoman.dialects.openai_chat.request_writer import NAME
from dragoman.dialects.openai_chat.response_writer import OF_MESSAGE
from dragoman.schema.free_text import INPUT
from dragoman.text import lenient_values
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.detail_fields import logprobs_json, unmodelled_counts
from dragoman.wire.openai_fields import REASONING_FIELDS
from dragoman.wire.response_reader import DECODE_ERRORS, BaseResponseReader, new_assembler
from dragoman.wire.upstream_errors import error_from_event

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
_CUT: Final = ("length", "content_filter")
"""Finish reasons that are kept if the server also sends `stop`."""
_OF_REPLY: Final = ("system_fingerprint", "provider", "timings", "citations", "search_results")
"""Fields next to the choices in chunks and bodies (llama.cpp, OpenRouter, Perplexity)."""
COUNTS: Final = {
    "prompt_tokens": (),
    "completion_tokens": (),
    "total_tokens": (),
    "prompt_tokens_details": ("cached_tokens",),
    "completion_tokens_details": ("reasoning_tokens",),
}
"""Fields of usage that `Usage` models."""
_INNER: Final = ("text", "content", "thinking", "summary")
"""Fields that contain the text if reasoning is an object."""
_TEXTS: Final = ("text", "output_text", "")
"""Types of blocks that are text if they contain any."""
_NOTHING: Final = ('""', "{}", "[]", "false")
_LEGACY: Final = -1
"""Index of a `function_call`; a reply contains at most one."""


class _Function(Struct, forbid_unknown_fields=True):
    arguments: str
    name: None = None


class _Piece(Struct, forbid_unknown_fields=True):
    """A chunk of an open call."""

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
    """Fast path for most chunks, in a tenth of the time; anything else does not match this type."""

    object: Literal["chat.completion.chunk"]
    choices: tuple[_Choice]
    usage: None = None
    prompt_progress: None = None
    error: None = None


_encode: Final = msgspec.json.Encoder().encode
_chunk: Final = msgspec.json.Decoder(_Chunk).decode


class ChatResponseReader(BaseResponseReader):
    """Reads one response."""

    __slots__ = ("_has_content", "_inputs", "_reason", "_several", "_stop")

    _nothing = "no choice"

    def __init__(self, request: Request, context: ExchangeContext) -> None:
        super().__init__(new_assembler(request, context, NAME, NAME_FORM))
        self._reason: FinishReason | None = None
        self._stop = ""
        self._several = False
        self._has_content = False
        """A choice has arrived."""
        self._inputs: set[int] = set()
        """Open calls of custom tools, whose argument string is not complete."""

    def _is_empty(self) -> bool:
        return not self._has_content

    def _ended(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason, self._stop)
        return True

    def _quick(self, data: bytes) -> bool:
        if not self._has_content:  # the first chunk also contains the role
            return False
        try:
            delta = _chunk(data).choices[0].delta
        except DECODE_ERRORS:
            return False
        if delta.reasoning_content:
            self._out.reasoning(delta.reasoning_content)
        if delta.content:
            self._out.text(delta.content)
        if delta.tool_calls:
            (piece,) = delta.tool_calls
            self._out.call(piece.index, "", "", piece.function.arguments)
        return True

    def _frame(self, fields: Fields) -> None:
        if (groq := lenient_values.fields(fields.pop("x_groq"))) is not None and (
            error := error_from_event(groq)
        ) is not None:
            raise error
        self._out.start()
        if (tier := fields.pop("service_tier")) is not None:
            self._out.detail("service_tier", tier.text)
        self._carry(fields, (*_OF_REPLY, PROGRESS))
        for choice in lenient_values.objects(fields.pop("choices")):
            self._choice(choice)
        if (usage := lenient_values.fields(fields.pop("usage"))) is not None:
            self._out.usage(_usage(usage))

    def _choice(self, choice: Fields) -> None:
        if (lenient_values.integer(choice.pop("index")) or 0) > 0:
            if not self._several:
                self._out.warn("extra_choice_dropped", "the server sent more than one choice; only the first is read")
            self._several = True
            return
        if (error := error_from_event(choice)) is not None:
            raise error
        self._has_content = True
        message = lenient_values.fields(choice.pop("delta")) or lenient_values.fields(choice.pop("message"))
        if message is not None:
            self._message(message)
        if (probable := lenient_values.fields(choice.pop("logprobs"))) is not None:
            for name in ("content", "refusal"):
                if entries := lenient_values.objects(probable.pop(name)):
                    self._out.detail(LOGPROBS, logprobs_json(entries))
        stop, reason = choice.pop("stop_reason"), lenient_values.string_or_json(choice.pop("finish_reason"))
        if reason and reason != "false":
            self._finished(reason, stop)

    def _finished(self, reason: str, stop: Cursor | None) -> None:
        if reason == "error":
            raise UpstreamError("the server ended the reply with finish_reason 'error'")
        if reason not in _FINISH:
            self._out.warn("unknown_finish", f"the server ended with {quote(reason)}; it is treated as 'stop'")
        for key in sorted(self._inputs):
            self._out.call(key, "", "", '"}')
        self._inputs.clear()
        self._reason = self._reason if self._reason in _CUT else _FINISH.get(reason, "stop")
        if self._reason == "stop" and stop is not None and stop.kind == "string" and stop.string():
            self._reason, self._stop = "stop_sequence", stop.string()

    def _message(self, message: Fields) -> None:
        self._reasoning(message)
        if (content := message.pop("content")) is not None:
            self._content(content)
        self._out.refusal(lenient_values.string(message.pop("refusal")))
        self._carry(message, OF_MESSAGE)
        for source in lenient_values.objects(message.pop("annotations")):
            self._annotation(source)
        for n, call in enumerate(lenient_values.objects(message.pop("tool_calls"))):
            self._call(call, n)
        if (function := lenient_values.fields(message.pop("function_call"))) is not None:
            name, arguments = (
                lenient_values.string(function.pop("name")),
                lenient_values.string_or_json(function.pop("arguments")),
            )
            self._out.call(_LEGACY, "", name, arguments)

    def _carry(self, fields: Fields, names: tuple[str, ...]) -> None:
        for name in names:
            if (value := fields.pop(name)) is not None and value.text not in _NOTHING:
                self._out.detail(name, value.text, NAME)

    def _annotation(self, source: Fields) -> None:
        """Returns a source of the text; `url_citation` is flat in Responses."""
        inner = lenient_values.fields(source.get("url_citation"))
        if inner is None:
            self._out.detail(ANNOTATIONS, f"[{bytes(source.raw).decode()}]", NAME)
            return
        flat = {"type": "url_citation", **inner.remaining()}
        self._out.detail(ANNOTATIONS, _encode([flat]).decode())

    def _reasoning(self, message: Fields) -> None:
        """Returns the first of these fields that has a value."""
        fields = [value for name in REASONING_FIELDS if (value := message.pop(name)) is not None]
        texts = ["".join(_texts(value)) for value in fields]
        text = next(filter(None, texts), "")
        self._out.reasoning(text)
        if not text and any(value.text not in _NOTHING for value in fields):
            self._out.report_dropped("reasoning")

    def _lose(self, fields: Fields, name: str) -> None:
        value = fields.get(name)
        if value is not None and value.text not in _NOTHING:
            self._out.report_dropped(name)

    def _content(self, content: Cursor) -> None:
        for item in lenient_values.items(content):
            block = lenient_values.fields(item)
            if block is None:
                self._out.text(lenient_values.string_or_json(item))
                continue
            kind = lenient_values.string(block.pop("type"))
            if kind == "thinking":
                self._out.reasoning("".join(_texts(block.pop("thinking"))))
            elif kind in _TEXTS and (text := block.pop("text")) is not None:
                self._out.text(lenient_values.string_or_json(text))
            else:
                self._out.warn("unknown_block", f"a block of type {quote(kind)} was dropped", item.text)

    def _call(self, call: Fields, number: int) -> None:
        is_new_call = number > 0
        self._lose(call, "extra_content")
        index, id = lenient_values.integer(call.pop("index")), lenient_values.string(call.pop("id"))
        if (custom := lenient_values.fields(call.pop("custom"))) is not None:
            self._input(number if index is None else index, id, custom)
            return
        inner = lenient_values.fields(call.pop("function")) or call
        name, arguments = (
            lenient_values.string(inner.pop("name")),
            lenient_values.string_or_json(inner.pop("arguments")),
        )
        self._out.call(index, id, name, arguments, is_new_call=is_new_call)

    def _input(self, key: int, id: str, custom: Fields) -> None:
        """Adds free text as the only string argument of a function."""
        opener = "" if key in self._inputs else f'{{"{INPUT}": "'
        self._inputs.add(key)
        text = msgspec.json.encode(lenient_values.string(custom.pop("input"))).decode()[1:-1]
        self._out.call(key, id, lenient_values.string(custom.pop("name")), opener + text)


def _texts(value: Cursor | None, *, is_inner: bool = False) -> Iterator[str]:
    """Yields the texts of reasoning: a string, `{"text": …}`, or a list of either; `is_inner` is such an object."""
    for item in lenient_values.items(value):
        block = lenient_values.fields(item)
        if block is None:
            yield lenient_values.string(item)
        elif not is_inner:
            for each in filter(None, (block.pop(name) for name in _INNER)):
                yield from _texts(each, is_inner=True)
        else:
            yield lenient_values.string(block.pop("text"))


def _usage(counts: Fields) -> Usage:
    extra = unmodelled_counts(counts, COUNTS)
    return Usage(
        input_tokens=lenient_values.count_at(counts, "prompt_tokens"),
        output_tokens=lenient_values.count_at(counts, "completion_tokens"),
        cached_input_tokens=lenient_values.count_at(counts, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=lenient_values.count_at(counts, "completion_tokens_details", "reasoning_tokens"),
        extra=extra,
        dialect=NAME if extra else "",
    )
