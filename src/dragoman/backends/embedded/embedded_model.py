"""One model on this machine, run by one llama.cpp process; `backend` loads several on request.

Prompts are rendered, constrained and read here; the engine only completes text. Its own tool handling is not used:
it silently drops tools that the chat template does not support, and ignores `required`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import EmbeddedConfig, context_window_of
from dragoman.backends.embedded.engine.settings import engine_settings
from dragoman.backends.embedded.grammar import constrain, gbnf_fields, planned_grammar
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.backends.embedded.local.measurements import load_calibration
from dragoman.backends.embedded.media import NO_PROJECTOR, MarkedMedia, find_projector, read_projector
from dragoman.backends.embedded.model_format import find_format
from dragoman.backends.embedded.prefixes.boundary import PrefixBoundary, constant_first
from dragoman.backends.embedded.questions.call_decision import (
    has_distinct_calls,
    with_words_note,
    words_grammar,
    words_notice,
)
from dragoman.backends.embedded.questions.call_plan import plan_notice, several_calls_from
from dragoman.backends.embedded.questions.restricted_prompt import must_end_in_words, with_prompt_tools
from dragoman.backends.embedded.response import EmbeddedResponse, PreparedPrompt
from dragoman.backends.embedded.small_models import results_as_prose
from dragoman.backends.request_limits import apply_trim
from dragoman.backends.text_mode import sampling
from dragoman.backends.text_mode.chat_template import ChatTemplate, Prompt
from dragoman.backends.text_mode.content_fallback import fallback_warnings, with_text_fallbacks
from dragoman.backends.text_mode.document_text import DocumentReader
from dragoman.backends.text_mode.request import text_reader
from dragoman.backends.text_mode.verbatim_history import VerbatimHistory
from dragoman.catalog import models as model_catalog
from dragoman.catalog.models import ModelProfile
from dragoman.core import events as ev
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    DragomanError,
    RequestError,
    UnsupportedError,
    UpstreamError,
    quote,
)
from dragoman.core.events import Notice
from dragoman.core.messages import Request, Tool, known_tools
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.prompting import trim
from dragoman.prompting.prompt_budget import Budget, budget_for
from dragoman.wire.translation import notices_by_name

log = logging.getLogger("dragoman.embedded")


class EmbeddedModel(Backend):
    """One model, run by one llama.cpp process."""

    name = "embedded"
    answers_in_turn = True

    def __init__(
        self,
        path: Path,
        profile: ModelProfile | None,
        config: EmbeddedConfig,
        report: Callable[[str], None],
        metadata: gguf.Metadata | None = None,
        name: str = "",
    ) -> None:
        """
        Args:
            path: the weights, a GGUF file.
            profile: the model's row of the catalogue; None: a file that is not in it.
            config: the settings.
            report: receives one line for whatever takes long.
            metadata: the metadata of the file, for a file that is not on this machine; None: read from the file.
            name: the name under which it is served; empty: that of the profile, otherwise of the file.

        Raises:
            ConfigError: the file is not a usable model, or a setting does not fit it.
        """
        model_metadata = gguf.metadata(path) if metadata is None else metadata
        self._description = (profile, config, model_metadata)
        self.after_result: str = profile.after_result if profile else "free"
        served_name = name or (profile.name if profile else path.stem)
        self.format = find_format(served_name, profile, model_metadata).format
        self._template = ChatTemplate(
            model_metadata.chat_template,
            model_metadata.bos,
            model_metadata.eos,
            model_metadata.control_tokens,
            model_metadata.user_tokens,
        )
        context_window = context_window_of(model_metadata.context_window, config)
        if context_window > model_metadata.context_window:
            raise ConfigError(
                f"expected embedded.context_window of at most {model_metadata.context_window}, for which "
                f"{path.name} was trained, got {context_window}; 0 takes what it has"
            )
        self._context_window = context_window
        self.verbatim_history = VerbatimHistory(owner=served_name)
        """What the model wrote recently."""
        self._prompt_trim = trim.validate_tier(config.prompt_trim, "embedded.prompt_trim")
        self._budget = Budget(0, config.tools)
        self.tokens_per_s = 0.0
        """Measured speed of reading prompts; 0: not measured."""
        projector = find_projector(path, config)
        self._projector = read_projector(projector) if projector else NO_PROJECTOR
        self._documents = DocumentReader(images=self._projector.has_vision)
        self._reply_tokens = profile.reply_tokens if profile else 0
        self._model = ServedModel(served_name, context_window)
        self._pooling = model_metadata.pooling
        self._path = "/v1/rerank" if self._pooling == gguf.RANKS else "/v1/embeddings"
        """The path of a model that writes no text."""
        settings = engine_settings(path, projector, context_window, self._pooling, config)
        self._uses_gbnf = bool(settings.program)
        self.several_calls_from, self.words_below = several_calls_from(config, profile), self._threshold(path)
        self._boundary = PrefixBoundary(self._template, self.format) if settings.prefix_dir else None
        self._new_engine = partial(LlamaProcess, settings, report)
        self.engine, self._has_ended = self._new_engine(), False

    @classmethod
    def from_config(cls, config: EmbeddedConfig, path: Path, report: Callable[[str], None]) -> "EmbeddedModel":
        """Returns the backend of the configured model.

        Args:
            config: the settings.
            path: the weights of the model that they name.
            report: receives one line for whatever takes long.

        Raises:
            ConfigError: the file is not a usable model.
        """
        model = config.model or model_catalog.default().name
        profile = model_catalog.find(model)
        name = "" if model.endswith(".gguf") else model
        return cls(path, profile, config, report, name=profile.name if profile else name)

    def _threshold(self, path: Path) -> float:
        """Returns the probability of a call below which the model answers in words, measured here or catalogued."""
        profile, config, _ = self._description
        if not config.decide_calls or self._uses_gbnf or not has_distinct_calls(self.format):
            return 0.0
        own = load_calibration(path)
        return own.words_below if own else profile.words_below if profile else 0.0

    def models(self) -> Sequence[ServedModel]:
        """Returns the one embedded model."""
        return (self._model,)

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns the model and its settings; see `Backend`."""
        profile, config, metadata = self._description
        named = profile.name if profile else ""
        settings = msgspec.to_builtins(config) | {"model": named or self._model.id}
        return {"kind": "embedded", "profile": named, "settings": settings, "metadata": msgspec.to_builtins(metadata)}

    def shows_images(self, model: str) -> bool:
        """Returns whether the model has a projector for images; see `Backend`."""
        return self._projector.has_vision

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request with the model's earlier output verbatim; see `Backend`."""
        return self.verbatim_history.restore(request)

    async def start(self) -> None:
        """Loads the weights, and measures the reading speed if `first_response_target_s` is set.

        Raises:
            BackendUnavailableError: the engine did not start.
        """
        if self._has_ended:
            self.engine, self._has_ended = self._new_engine(), False
        await self.engine.start()
        target_s = self._description[1].first_response_target_s
        if target_s:
            self.tokens_per_s = await self.engine.reading_speed()
            self._budget = budget_for(target_s, self.tokens_per_s, self._budget.tools)

    async def close(self) -> None:
        """Ends the engine; running requests fail. The model can be started again, and remembers what it wrote."""
        self._has_ended = True
        await self.engine.close()

    def health(self) -> Mapping[str, object]:
        """Returns the state of the engine, for /health."""
        engine = self.engine
        return {
            "backend": self.name,
            "model": self._model.id,
            "ready": engine.is_ready,
            "active": engine.active,
            "waiting": engine.waiting,
            "restarts": engine.restarts,
            **({"hardware": str(engine.hardware)} if engine.hardware else {}),
            **({"read_tokens_per_s": round(self.tokens_per_s, 1)} if self.tokens_per_s else {}),
            **({"prefixes": engine.prefixes.state()} if engine.prefixes else {}),
        }

    def forwards(self, path: str, model: str) -> bool:
        """Returns whether the model makes embeddings, or ranks documents, as this path asks for; see `Backend`."""
        return bool(self._pooling) and path == self._path

    async def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yields embeddings or ranks as the engine writes them; see `Backend`.

        Args:
            path: /v1/embeddings or /v1/rerank.
            body: JSON.
            headers: Not used.
            began: Receives the response headers.

        Raises:
            DragomanError: the request is not valid, or the engine is busy or down.
        """
        fields = read_object(body)
        if fields.get("dimensions") is not None:
            raise UnsupportedError("the embedded engine returns embeddings of the model's own length", "dimensions")
        began({"content-type": "application/json"})
        async with aclosing(self.engine.post(path, fields | {"model": self._model.id})) as pieces:
            async for piece in pieces:
                yield piece

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the model's response.

        Raises:
            DragomanError: before `Start`; later errors are `Failure` events, see `Backend`.
        """
        if self._pooling:
            raise UnsupportedError(f"model {quote(self._model.id)} writes no text; it is for {self._path}", "model")
        await self.verbatim_history.recall(request)
        answer = EmbeddedResponse(self, request, context)
        try:
            async with aclosing(answer.events()) as events:
                async for batch in events:
                    yield answer.listener.feed(batch)
        except DragomanError as error:
            if not answer.started:
                raise
            yield [ev.Failure(error)]

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the number of prompt tokens, counted by the engine; None while it is down, and for images.

        Raises:
            RequestError: something in the request can be neither shown to the model nor left out.
        """
        media = MarkedMedia(self._projector)
        request = await self.show_documents(self.verbatim_history.restore(request))
        _, prompt, _ = await asyncio.to_thread(self._as_shown, request, media)
        if media.data:
            return None  # the engine counts text only
        try:
            return await self.engine.count(prompt.text)
        except (BackendUnavailableError, UpstreamError) as error:
            log.warning("the prompt was not counted: %s", error)
            return None

    async def show_documents(self, request: Request) -> Request:
        """Returns the request with the text of its PDFs, and images of their pages without text, in their place."""
        return await self._documents.show(request)

    def _as_shown(self, request: Request, media: MarkedMedia) -> tuple[Request, Prompt, tuple[Notice, ...]]:
        """Returns the request as the model can be shown it, its prompt, and warnings about what was trimmed.

        Images and recordings are marks in both, and added to `media`.
        """
        if request.prompt_tools:
            request = with_prompt_tools(request, ends_in_words=self._ends_in_words(request))
        request = media.mark(with_text_fallbacks(request))
        request, trimming = apply_trim(request, self._prompt_trim, self._budget)
        request = constant_first(request)
        if self.after_result == "prose":
            request = results_as_prose(request)
        return request, self._template.render(request, self.format), trimming

    def prepare(self, request: Request) -> PreparedPrompt:
        """Returns the prompt, the grammar and the warnings; takes seconds for thousands of tools.

        Raises:
            RequestError: something in the request can be neither shown to the model nor left out.
        """
        fallbacks = fallback_warnings(request)
        media = MarkedMedia(self._projector)
        restricted = request
        request, prompt, trimming = self._as_shown(request, media)
        # A number over the engine's 32 bits would come out as another one.
        limit = min(request.max_tokens or self._reply_tokens or self._context_window, self._context_window)
        body: dict[str, Any] = {"prompt": prompt.text, "cache_prompt": True, "n_predict": limit}
        if media.data:
            cut = media.cut(prompt.text)
            body |= {"prompt": cut.segments, "media": cut.data}
        elif self._boundary is not None:
            body["prefix_chars"] = self._boundary.constant_chars(request, prompt.text)
        body |= sampling.engine_settings(request)
        offered = len(request.tools)
        if request.prompt_tools:
            allowed = {tool.name for tool in restricted.tools}
            tools = tuple(tool for tool in request.tools if tool.name in allowed)
            request = msgspec.structs.replace(request, tools=tools, tool_choice=restricted.tool_choice)
        in_words = self._ends_in_words(restricted)
        warnings = [*fallbacks, *media.warnings(), *trimming]
        if names := sampling.ignored_settings(request):
            warnings += notices_by_name(
                "unsupported_parameter", "the embedded engine does not have {}", {n: n for n in names}
            )
        has_tools = any(t.kind == "function" for t in request.tools) and request.tool_choice.mode != "none"
        if has_tools:
            # Agents such as Claude Code name no temperature; the engine's own (0.8) makes small models call at random.
            body.setdefault("temperature", 0)
        elif request.tool_choice.mode in ("required", "named"):
            warnings.append(Notice("constraint_not_applied", "a call is required, but no tool can be offered here"))
        fields: Mapping[str, Any]
        more: list[Notice] = []
        if in_words:
            fields = {"grammar": self._words_grammar(restricted.prompt_tools)}
        elif self._uses_gbnf:
            fields, more = gbnf_fields(self.format, request, has_tools=has_tools)
        else:
            grammar, more = constrain(self.format, request, has_tools=has_tools)
            fields = {"grammar": grammar} if grammar else {}
        body |= fields
        known = known_tools(request.tools)
        return PreparedPrompt(
            body, prompt.suffix, [*warnings, *more], has_tools, offered, known, is_restricted=in_words
        )

    def _ends_in_words(self, request: Request) -> bool:
        can_tell = not self._uses_gbnf and self.after_result != "prose"
        return can_tell and must_end_in_words(request, self.format)

    def _words_grammar(self, tools: Sequence[Tool]) -> str:
        return words_grammar(self.format, tools, self._description[2].chat_template)

    def prepare_plan(self, prepared: PreparedPrompt, calls: int) -> PreparedPrompt:
        """Returns the same prompt with a grammar that allows this number of calls only, or as it is without one.

        Args:
            prepared: what the engine would be sent with a free choice.
            calls: the number of calls.
        """
        grammar = planned_grammar(self.format, prepared.tools, calls)
        if grammar is None:
            return prepared
        body = prepared.body | {"grammar": grammar}
        warnings = [*prepared.warnings, plan_notice(calls)]
        return msgspec.structs.replace(prepared, body=body, warnings=warnings, is_restricted=True)

    def prepare_words(self, request: Request, prepared: PreparedPrompt, probability: float) -> PreparedPrompt:
        """Returns the prompt with a note that no call is needed, and a grammar that allows none.

        Args:
            request: the request, whose last message is the user's.
            prepared: what the engine would be sent with a free choice.
            probability: the probability of a call, for the warning.

        Raises:
            RequestError: see `prepare`.
        """
        noted = self.prepare(with_words_note(request))
        body = noted.body | {"grammar": self._words_grammar(prepared.tools)}
        warnings = [*prepared.warnings, words_notice(probability, self.words_below)]
        return msgspec.structs.replace(prepared, body=body, warnings=warnings, is_restricted=True)

    def new_reader(self, request: Request, context: ExchangeContext, prepared: PreparedPrompt) -> ReplyReader:
        """Returns a reader for one reply."""
        tools = request.tools if prepared.has_tools else ()
        return text_reader(self.format, request, tools, context, prompt_suffix=prepared.suffix)


def read_object(body: bytes) -> dict[str, Any]:
    """Returns the members of a JSON object.

    Raises:
        RequestError: The body is something else.
    """
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"expected a JSON object, got {error}") from None
