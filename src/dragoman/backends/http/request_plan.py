"""Builds the requests to one server, and the pipeline that reads its responses.

    native    Request → the server's API; bytes → the API's reader → events
    parse     the same, and text among the events is parsed in the model's format
    prompt    plain turns or, for `completions`, a prompt; text is parsed as in `parse`

Each method takes the `ModelMode` of the request's model; a request keeps it to its end, also if a probe ends meanwhile.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec

from dragoman import formats
from dragoman.backends.http import constrained_decoding
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.model_modes import AUTO, ModelMode
from dragoman.backends.http.response import ResponsePipeline
from dragoman.backends.http.tool_choice import downgrade_tool_choice
from dragoman.backends.request_limits import apply_trim, prepare_for_server, reject_oversized
from dragoman.backends.text_mode import completions
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.content_fallback import fallback_warnings, with_text_fallbacks
from dragoman.backends.text_mode.response import TextModeReader
from dragoman.backends.text_mode.verbatim_history import ReplyRecorder, VerbatimHistory
from dragoman.catalog import servers
from dragoman.catalog.servers import Provider
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError
from dragoman.core.events import Notice
from dragoman.core.identifiers import ANY_STRING
from dragoman.core.messages import Reasoning, Request
from dragoman.identify import FormatMatch, detect_format
from dragoman.parsing.format import Format
from dragoman.prompting import trim
from dragoman.prompting.prompt_budget import Budget
from dragoman.schema.targets import Target, get_target
from dragoman.wire.dialect import Dialect, UpstreamRequest
from dragoman.wire.translation import adapt_request_schemas

log = logging.getLogger("dragoman.backends.http")

REJECTED_LIMIT: Final = 1024
"""How many rejected constraints are remembered."""


class RequestPlanner:
    """Builds requests and response pipelines for one server."""

    def __init__(self, name: str, config: HttpConfig, dialect: Dialect) -> None:
        """
        Raises:
            ConfigError: the provider, the schema profile or the trim tier is unknown.
        """
        self._name, self._config, self._dialect = name, config, dialect
        self.provider = _provider(name, config)
        self._target = _target(name, config, self.provider)
        self._prompt_trim = trim.validate_tier(config.prompt_trim, f"upstreams.{name}.prompt_trim")
        self._budget = Budget(config.prompt_tokens, config.tools)
        self.verbatim_history = VerbatimHistory()
        """Recent text of models that is parsed here."""
        self._templates = completions.ChatTemplates(name, config.first_byte_timeout_s)
        self._rejected_constraints: set[bytes] = set()
        """Constraints that the server has rejected for a free choice, by `_constraint_key`."""
        self._identified: dict[str, FormatMatch] = {}
        """By template file: what it shows of the model's format, if the server renders the template itself."""
        self.recovered_calls: Counter[str] = Counter()
        """By model: the tool calls that were recovered from its text."""

    def set_provider(self, provider: Provider) -> None:
        """Sets the provider, which decides what the settings leave open."""
        self.provider, self._target = provider, _target(self._name, self._config, provider)

    def describe(self, model: str, mode: ModelMode) -> Mapping[str, object]:
        """Returns how this model is requested, for a replay without the server and its files; see `SupportsReplay`."""
        hidden = ("url", "api_key", "api_key_env", "models", "model_overrides")
        settings = {k: v for k, v in msgspec.to_builtins(self._config).items() if k not in hidden}
        template = self._templates.describe(model, mode.chat_template) if mode.endpoint == "completions" else {}
        if mode.chat_template in self._identified:
            template = {"template": completions.read_template_file(mode.chat_template, self._name)}
        provider = self.provider.name if self.provider else ""
        chosen = {name: getattr(mode, name) for name in ("tool_mode", "call_format", "endpoint", "constrain", "why")}
        return {"name": self._name, "settings": settings, "provider": provider, "model_mode": chosen, **template}

    def set_template(self, model: str, mode: ModelMode, facts: Mapping[str, str]) -> None:
        """Uses the chat template of these facts instead of a file or the server's own."""
        if mode.endpoint == "completions":
            self._templates.set(model, mode.chat_template, facts["template"], facts.get("eos", ""))
        else:
            self._identified[mode.chat_template] = detect_format(chat_template=facts["template"])

    async def prepare(self, model: str, mode: ModelMode, connection: UpstreamConnection) -> None:
        """Loads what requests to this model need in this mode.

        Raises:
            ConfigError: the template cannot be read.
            BackendUnavailableError: there is no chat template to render prompts with.
        """
        if (
            mode.endpoint == "chat"
            and mode.tool_mode != "native"
            and mode.chat_template
            and mode.chat_template not in self._identified
        ):
            source = completions.read_template_file(mode.chat_template, self._name)
            self._identified[mode.chat_template] = await asyncio.to_thread(detect_format, chat_template=source)
        if mode.endpoint == "completions":
            await self._templates.prepare(model, mode.chat_template, connection)

    def path(self, mode: ModelMode) -> str:
        """Returns the path of the endpoint."""
        return completions.PATH if mode.endpoint == "completions" else self._dialect.path

    def is_passthrough(self, request: Request, mode: ModelMode) -> bool:
        """Returns whether a request of the server's own API can be sent unchanged.

        Raises:
            ContextOverflowError: the request is too long for the model.
        """
        fitted, _ = self._fit_budget(request)
        reject_oversized(fitted, self._config.context_window)
        return mode.tool_mode == "native" and fitted is request and self._as_accepted(request)[0] == request

    def token_count_body(self, request: Request, mode: ModelMode) -> bytes:
        """Returns the body for counting the tokens of this request.

        Raises:
            UnsupportedError: the server's API cannot express the request.
        """
        return self._write(self._fit_budget(request)[0], mode).body

    def build(self, request: Request, mode: ModelMode, *, hold: bool = True) -> UpstreamRequest:
        """Returns the request for the server; unless `hold`, without a constraint.

        Raises:
            UnsupportedError: the server's API cannot express the request.
            ContextOverflowError: the request is too long for the model.
        """
        fitted, warnings = self._fit_budget(request)
        reject_oversized(fitted, self._config.context_window)
        outgoing = self._write_completion(fitted, mode) if mode.endpoint == "completions" else self._write(fitted, mode)
        outgoing = outgoing._replace(warnings=(*warnings, *outgoing.warnings))
        return self._constrain(outgoing, fitted, mode, hold)

    def open_response(
        self, request: Request, context: ExchangeContext, mode: ModelMode, outgoing: UpstreamRequest
    ) -> ResponsePipeline:
        """Returns the pipeline that reads the response to `outgoing`.

        Args:
            request: The client's request.
            context: The exchange that the response is part of.
            mode: How the model is asked for calls.
            outgoing: The request that was sent.
        """
        by_prompt = mode.endpoint == "completions"
        reader = completions.CompletionReader(request, context) if by_prompt else self._dialect.reader(request, context)
        match = self._identified.get(mode.chat_template)
        opened = outgoing.prompt_suffix or (match.prompt_suffix if match else "")
        return ResponsePipeline(
            reader,
            outgoing,
            self._text_reader(request, context, mode, opened, outgoing),
            ReplyRecorder(self.verbatim_history),
        )

    def _format(self, request: Request, mode: ModelMode) -> Format:
        """Returns the format that the model writes: from the settings, else its template, else its name."""
        match = self._identified.get(mode.chat_template)
        return (
            match.format if match and not mode.call_format and match.by != "nothing" else mode.format_of(request.model)
        )

    def _fit_budget(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """Returns the request adapted to this server and trimmed to the configured limits, with warnings."""
        request, limited = self._limit_max_tokens(prepare_for_server(request, self._dialect, self._config.url))
        request, trimmed = apply_trim(request, self._prompt_trim, self._budget)
        return request, (*limited, *trimmed)

    def _limit_max_tokens(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """Returns the request with `max_tokens` lowered to the server's limit."""
        most, requested = self._config.max_output_tokens, request.max_tokens
        if requested is None and most:
            return msgspec.structs.replace(request, max_tokens=most), ()
        if not most or requested is None or requested <= most:
            return request, ()
        warning = Notice(
            "max_tokens_clamped",
            f"max_tokens was lowered from {requested} to {most}, the maximum of {self._name}",
            detail="max_tokens",
        )
        return msgspec.structs.replace(request, max_tokens=most), (warning,)

    def _write(self, request: Request, mode: ModelMode) -> UpstreamRequest:
        """Returns the request in the server's API."""
        as_shown, fallbacks = self._as_shown(request, mode)
        accepted, downgrades = self._as_accepted(as_shown)
        outgoing = self._dialect.write_request(accepted, request.model)
        outgoing = outgoing._replace(warnings=(*fallbacks, *downgrades, *outgoing.warnings))
        return outgoing if as_shown is request else outgoing._replace(stop_locally=request.stop)

    def _as_accepted(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """Returns the request as this provider accepts it, and warnings; equal to the input if nothing changes."""
        accepted, downgrades = downgrade_tool_choice(request, self.provider.tool_choice if self.provider else ())
        accepted, adapted = adapt_request_schemas(accepted, self._target) if self._target else (accepted, ())
        if self.provider and self.provider.reasoning_field and _has_reasoning(accepted):
            accepted = msgspec.structs.replace(accepted, reasoning_field=self.provider.reasoning_field)
        return accepted, (*downgrades, *adapted)

    def _as_shown(self, request: Request, mode: ModelMode) -> tuple[Request, tuple[Notice, ...]]:
        """Returns the request as shown to the model in this mode, and warnings about what is lost."""
        match mode.tool_mode:
            case "native":
                return request, ()
            case "parse":
                return text_mode_request.for_parse_mode(self.verbatim_history.restore(request)), ()
            case "prompt":
                return text_mode_request.for_prompted_mode(
                    self.verbatim_history.restore(request), self._format(request, mode)
                )

    def _write_completion(self, request: Request, mode: ModelMode) -> UpstreamRequest:
        """Returns the request as a completion with a rendered prompt."""
        restored = with_text_fallbacks(self.verbatim_history.restore(request))
        warnings = fallback_warnings(request)
        if request.response_schema and text_mode_request.callable_tools(request):
            restored, warnings = (
                text_mode_request.with_schema_prompt(restored),
                (*warnings, text_mode_request.unconstrained_reply_warning()),
            )
        prompt = self._templates.get(request.model, mode.chat_template).render(restored, self._format(request, mode))
        outgoing = completions.write_request(restored, prompt)
        return outgoing._replace(warnings=(*warnings, *outgoing.warnings))

    def disable_constraint(self, request: Request, mode: ModelMode) -> None:
        """Remembers that the server rejected this constraint and responded without it, so that it is not sent again."""
        if len(self._rejected_constraints) >= REJECTED_LIMIT:
            self._rejected_constraints.clear()
        self._rejected_constraints.add(_constraint_key(request, self._constraint_for(request, mode)))

    def _constrain(self, outgoing: UpstreamRequest, request: Request, mode: ModelMode, hold: bool) -> UpstreamRequest:
        """Returns the request with the fields that constrain the model, unless the server has rejected them."""
        constraint = self._constraint_for(request, mode)
        is_free = request.tool_choice.mode == "auto" and not request.response_schema
        if constraint.fields and (
            not hold or (is_free and _constraint_key(request, constraint) in self._rejected_constraints)
        ):
            constraint = constrained_decoding.ConstraintFields(
                {}, () if is_free else (constrained_decoding.unconstrained_warning("the server refused the grammar"),)
            )
        if constraint.reply_format:  # overrides a warning about the server's own tool choice
            warnings = tuple(w for w in outgoing.warnings if w.code != "constraint_not_applied")
            outgoing = outgoing._replace(warnings=warnings)
        return constrained_decoding.with_constraint(outgoing, constraint)

    def _constraint_for(self, request: Request, mode: ModelMode) -> constrained_decoding.ConstraintFields:
        """Returns the fields that constrain the model to this request's calls, or to the schema of its reply."""
        own = self.provider if self.provider and self.provider.api == self._dialect.name else None
        methods, tools = mode.constrain or (own.constrain if own else ()), text_mode_request.callable_tools(request)
        if mode.tool_mode != "prompt":
            methods = tuple(name for name in methods if own and name in own.beside_tools)
            is_honoured = mode.tool_mode == "native" and own is not None and "required" in own.tool_choice
            is_free = request.tool_choice.mode not in ("required", "named") or request.response_schema
            if not (methods and tools) or is_honoured or is_free:
                return constrained_decoding.ConstraintFields({})
        prompted = mode.endpoint == "completions"
        if prompted and request.response_schema and not tools:
            return constrained_decoding.constrain_to_json(methods, request.response_schema)
        tools, original_names = text_mode_request.rename_tools(tools, self._name_pattern(request, mode))
        sent_names = {name: spelled for spelled, name in original_names.items()}
        choice = msgspec.structs.replace(
            request.tool_choice, name=sent_names.get(request.tool_choice.name, request.tool_choice.name)
        )
        return constrained_decoding.constrain_to_calls(
            methods, self._format(request, mode), tools, choice, self._target, prompted=prompted
        )

    def _name_pattern(self, request: Request, mode: ModelMode) -> re.Pattern[str]:
        """Returns the pattern for tool names in this request."""
        return (
            ANY_STRING
            if request.dialect == self._dialect.name or mode.tool_mode == "prompt"
            else self._dialect.tool_name_pattern
        )

    def _text_reader(
        self, request: Request, context: ExchangeContext, mode: ModelMode, opened: str, outgoing: UpstreamRequest
    ) -> TextModeReader | None:
        """Returns the reader for the response's text; None if the server is known to parse it."""
        tools = text_mode_request.callable_tools(request)
        recovers = self._config.recover_leaked_calls
        if mode.tool_mode == "native" and not (recovers or outgoing.reply_format):
            return None
        tools, names = text_mode_request.rename_tools(tools, self._name_pattern(request, mode))
        new = partial(text_mode_request.text_reader, request=request, tools=tools, context=context)
        known = None if mode.tool_mode == "native" else self._format(request, mode)
        known = formats.get(outgoing.reply_format) if outgoing.reply_format else known
        leaks = (
            text_mode_request.leak_detector(request, new)
            if recovers and (known is None or known.name != AUTO)
            else None
        )
        reader = (lambda begins: new(known, prompt_suffix=opened if begins else "")) if known else None
        saved = partial(self._count_recovered, request.model)
        repeats = mode.tool_mode != "prompt"  # models without native tools write the same call again and again
        parallel = request.tool_choice.parallel_tool_calls
        return TextModeReader(reader, leaks, context.new_id, names, saved, parallel=parallel, repeats=repeats)

    def _count_recovered(self, model: str) -> None:
        """Counts a tool call recovered from this model's text; the first one is logged."""
        self.recovered_calls[model] += 1
        if self.recovered_calls[model] == 1:
            log.warning('%s leaves calls of %s in the text; tool_mode = "parse" reads them for sure', self._name, model)


def _constraint_key(request: Request, constraint: constrained_decoding.ConstraintFields) -> bytes:
    return sha256(msgspec.json.encode((request.model, constraint.fields))).digest()


def _has_reasoning(request: Request) -> bool:
    return any(isinstance(part, Reasoning) for message in request.messages for part in message.parts)


def _provider(name: str, config: HttpConfig) -> Provider | None:
    try:
        return servers.get(config.provider) if config.provider else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at upstreams.{name}.provider") from None


def _target(name: str, config: HttpConfig, provider: Provider | None) -> Target | None:
    """Returns the schema profile of the settings, or else of the provider."""
    profile = config.schema_profile or (provider.schema_profile if provider else "")
    try:
        return get_target(profile) if profile else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at upstreams.{name}.schema_profile") from None
