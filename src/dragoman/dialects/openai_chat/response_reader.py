"""Reads responses of upstream servers of Chat Completions.

Supported variants, streamed or whole (wire/call_assembly/assembler.py describes the variants of calls):

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
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import UpstreamError, quote
from dragoman.core.identifiers import NAME_FORM
from dragoman.core.messages import FinishReason, Request, Usage
from dragoman.core.response_details import ANNOTATIONS, LOGPROBS, PROGRESS
from dragoman.dialects.openai_chat.request_writer import NAME
from dragoman.dialects.openai_chat.response_writer import OF_MESSAGE
from dragoman.schema.free_text import INPUT
from dragoman.text import lenient_values
from dragoman.text.json_cursor import NULL, Cursor, Fields
from dragoman.text.surrogates import may_have_surrogates
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
_DETAILS: Final = (*_OF_REPLY, PROGRESS)
_NO_DETAILS: Final = (NULL,) * len(_DETAILS)
_details_of: Final = attrgetter(*_DETAILS)
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


_Count = Annotated[int, Meta(ge=0, le=lenient_values.MAX_COUNT)]


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


class _WholeFunction(Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class _WholeCall(Struct, forbid_unknown_fields=True):
    id: str
    function: _WholeFunction
    type: Literal["function"] | None = None
    index: Annotated[int, Meta(ge=0, le=lenient_values.MAX_COUNT)] | None = None


class _Message(Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: tuple[()] | None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None
    tool_calls: list[_WholeCall] | None = None


class _EndChoice(Struct, forbid_unknown_fields=True):
    index: Literal[0]
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: None = None
    stop_reason: None = None
    token_ids: None = None


class _CachedTokens(Struct, forbid_unknown_fields=True):
    cached_tokens: _Count = 0
    audio_tokens: Literal[0] | None = None


class _ReasoningTokens(Struct, forbid_unknown_fields=True):
    reasoning_tokens: _Count = 0
    audio_tokens: Literal[0] | None = None
    accepted_prediction_tokens: Literal[0] | None = None
    rejected_prediction_tokens: Literal[0] | None = None


class _Usage(Struct, forbid_unknown_fields=True):
    prompt_tokens: _Count
    completion_tokens: _Count
    total_tokens: Raw = NULL
    prompt_tokens_details: _CachedTokens | None = None
    completion_tokens_details: _ReasoningTokens | None = None


class _Body(Struct):
    """Fast path for whole replies, and for the first and last chunks of a stream."""

    object: Literal["chat.completion.chunk", "chat.completion"]
    choices: Annotated[list[_EndChoice], Meta(max_length=1)]
    usage: _Usage | None = None
    x_groq: None = None
    error: None = None
    service_tier: Raw = NULL
    system_fingerprint: Raw = NULL
    provider: Raw = NULL
    timings: Raw = NULL
    citations: Raw = NULL
    search_results: Raw = NULL
    prompt_progress: Raw = NULL


_encode: Final = msgspec.json.Encoder().encode
_chunk: Final = msgspec.json.Decoder(_Chunk).decode
_body: Final = msgspec.json.Decoder(_Body).decode


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
            return self._quick_body(data)
        try:
            delta = _chunk(data).choices[0].delta
        except DECODE_ERRORS:
            return self._quick_body(data)
        if delta.reasoning_content:
            self._out.reasoning(delta.reasoning_content)
        if delta.content:
            self._out.text(delta.content)
        if delta.tool_calls:
            (piece,) = delta.tool_calls
            self._out.call(piece.index, "", "", piece.function.arguments)
        return True

    def _quick_whole(self, body: bytes) -> bool:
        return self._quick_body(body)

    def _quick_body(self, data: bytes) -> bool:
        """Reads a whole reply, or the first or last chunk of a stream, if it is in its usual form."""
        if may_have_surrogates(data):
            return False
        try:
            str(data, "utf-8")  # msgspec does not check strings that are not decoded
            body = _body(data)
        except DECODE_ERRORS:
            return False
        self._out.start()
        if body.service_tier != NULL:
            self._out.detail("service_tier", str(body.service_tier, "utf-8"))
        if (details := _details_of(body)) != _NO_DETAILS:
            for name, raw in zip(_DETAILS, details, strict=True):
                if raw != NULL and (text := str(raw, "utf-8")) not in _NOTHING:
                    self._out.detail(name, text, NAME)
        if body.choices:
            choice = body.choices[0]
            self._has_content = True
            if (message := choice.delta or choice.message) is not None:
                self._quick_message(message)
            if choice.finish_reason and choice.finish_reason != "false":
                self._finished(choice.finish_reason, None)
        if (usage := body.usage) is not None:
            cached, reasoning = usage.prompt_tokens_details, usage.completion_tokens_details
            counts = Usage(
                usage.prompt_tokens,
                usage.completion_tokens,
                cached.cached_tokens if cached else 0,
                reasoning.reasoning_tokens if reasoning else 0,
            )
            self._out.usage(counts)
        return True

    def _quick_message(self, message: _Message) -> None:
        if message.reasoning_content:
            self._out.reasoning(message.reasoning_content)
        if message.content:
            self._out.text(message.content)
        if message.refusal:
            self._out.refusal(message.refusal)
        for n, call in enumerate(message.tool_calls or ()):
            self._out.call(call.index, call.id, call.function.name, call.function.arguments, is_new_call=n > 0)

    def _frame(self, fields: Fields) -> None:
        if (groq := lenient_values.fields(fields.pop("x_groq"))) is not None and (
            error := error_from_event(groq)
        ) is not None:
            raise error
        self._out.start()
        if (tier := fields.pop("service_tier")) is not None:
            self._out.detail("service_tier", tier.text)
        self._carry(fields, _DETAILS)
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
        if self._inputs:
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
        """Emits a source of the text; `url_citation` is flat in Responses."""
        inner = lenient_values.fields(source.get("url_citation"))
        if inner is None:
            self._out.detail(ANNOTATIONS, f"[{bytes(source.raw).decode()}]", NAME)
            return
        flat = {"type": "url_citation", **inner.remaining()}
        self._out.detail(ANNOTATIONS, _encode([flat]).decode())

    def _reasoning(self, message: Fields) -> None:
        """Emits the first of these fields that has a value."""
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
