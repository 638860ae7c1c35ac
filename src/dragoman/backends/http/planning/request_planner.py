"""Plans the requests to one server: everything that a request and the reading of its response need, computed once.

    native    Request → the server's API; bytes → the API's reader → events
    parse     the same, and text among the events is parsed in the model's format
    prompt    plain turns or, for `completions`, a prompt; text is parsed as in `parse`

A plan takes the `ModelMode` of the request's model and keeps it to the end, also if a probe ends meanwhile. If a server
rejects something, `Rejections` plans the request again without that.
"""

import asyncio
import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from dragoman import formats
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.model_modes import ModelMode
from dragoman.backends.http.planning import constrained_decoding
from dragoman.backends.http.planning.constrained_decoding import ConstraintFields
from dragoman.backends.http.planning.found_tools import mode_for_found_tools, with_calls_in_text
from dragoman.backends.http.planning.provider import provider_of, schema_target
from dragoman.backends.http.planning.rejections import Rejections
from dragoman.backends.http.planning.request_plan import RequestPlan
from dragoman.backends.http.planning.tool_choice import downgrade_tool_choice
from dragoman.backends.request_limits import apply_trim, prepare_for_server, reject_oversized
from dragoman.backends.text_mode import completions
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.content_fallback import fallback_warnings, with_text_fallbacks
from dragoman.backends.text_mode.verbatim_history import ReplyStore, VerbatimHistory
from dragoman.catalog.servers import Provider
from dragoman.core.errors import UpstreamError
from dragoman.core.events import Notice
from dragoman.core.identifiers import ANY_STRING
from dragoman.core.messages import Reasoning, Request, Tool, has_part, known_tools
from dragoman.identify import FormatMatch, detect_format
from dragoman.parsing.format import Format
from dragoman.prompting import trim
from dragoman.prompting.prompt_budget import Budget
from dragoman.wire.dialect import Dialect, UpstreamRequest
from dragoman.wire.translation import adapt_request_schemas

log = logging.getLogger("dragoman.backends.http")

REJECTED_LIMIT: Final = 1024
"""How many rejected constraints are remembered."""


class RequestPlanner:
    """Plans the requests to one server."""

    def __init__(self, name: str, config: HttpConfig, dialect: Dialect, replies: ReplyStore | None = None) -> None:
        """
        Args:
            name: the server's name in the settings.
            config: its settings.
            dialect: its API.
            replies: where recent replies of its models are stored; None: a store of its own.

        Raises:
            ConfigError: the provider, the schema profile or the trim tier is unknown.
        """
        self._name, self._config, self._dialect = name, config, dialect
        self.provider = provider_of(name, config)
        self._target = schema_target(name, config, self.provider)
        self._prompt_trim = trim.validate_tier(config.prompt_trim, f"upstreams.{name}.prompt_trim")
        self._budget = Budget(config.prompt_tokens, config.tools)
        self._rejections = Rejections(name, dialect.name)
        self.verbatim_history = VerbatimHistory(replies, name)
        """Recent text of models that is parsed here."""
        self._templates = completions.ChatTemplates(name, config.first_byte_timeout_s)
        self._rejected_constraints: set[bytes] = set()
        """Constraints that the server has rejected for a free choice, by `_constraint_key`."""
        self._identified: dict[str, FormatMatch] = {}
        """By template file: what it shows of the model's format, if the server renders the template itself."""

    def set_provider(self, provider: Provider) -> None:
        """Sets the provider, which decides what the settings leave open."""
        self.provider, self._target = provider, schema_target(self._name, self._config, provider)

    def describe(self, model: str, mode: ModelMode) -> Mapping[str, object]:
        """Returns how this model is requested, for a replay without the server and its files; see `Backend`."""
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

    def is_passthrough(self, request: Request, mode: ModelMode) -> bool:
        """Returns whether a request of the server's own API can be sent unchanged.

        Raises:
            ContextOverflowError: the request is too long for the model.
        """
        fitted, _ = self._fit_budget(request)
        reject_oversized(fitted, self._config.context_window)
        if mode.tool_mode != "native" or fitted is not request:
            return False
        accepted, _ = self._as_accepted(request)
        return accepted is request or accepted == request

    def token_count_body(self, request: Request, mode: ModelMode) -> bytes:
        """Returns the body for counting the tokens of this request.

        Raises:
            UnsupportedError: the server's API cannot express the request.
        """
        return self._write_chat(self._fit_budget(request)[0], self._mode_for(request, mode)).body

    def plan(self, request: Request, mode: ModelMode, *, without_grammar: bool = False) -> RequestPlan:
        """Returns the plan for this request: limit and trim it, write it in the server's API, constrain the model.

        Args:
            request: The request of the client.
            mode: How this model is asked for calls.
            without_grammar: Leaves out the constraint, which the server has rejected.

        Raises:
            UnsupportedError: the server's API cannot express the request.
            ContextOverflowError: the request is too long for the model.
        """
        fitted, warnings = self._fit_budget(request)
        reject_oversized(fitted, self._config.context_window)
        mode = self._mode_for(fitted, mode)
        is_completion = mode.endpoint == "completions"
        written = self._write_completion(fitted, mode) if is_completion else self._write_chat(fitted, mode)
        if warnings:
            written = written._replace(warnings=(*warnings, *written.warnings))
        constraint = self._constraint_for(fitted, mode)
        upstream = written
        if constraint is not _UNCONSTRAINED:
            upstream = self._constrain(written, fitted, constraint, without_grammar)
        tools, client_names = self._callable_tools(request, mode)
        match = self._identified.get(mode.chat_template)
        plan = RequestPlan(
            request=request,
            mode=mode,
            path=completions.PATH if is_completion else self._dialect.path,
            upstream=upstream,
            format=self._reply_format(request, mode, upstream),
            tools=tools,
            client_names=client_names,
            prompt_suffix=upstream.prompt_suffix or (match.prompt_suffix if match else ""),
            constraint=constraint,
            without_grammar=without_grammar,
        )
        return self._rejections.apply_known(plan)

    def plan_without(self, plan: RequestPlan, error: UpstreamError) -> RequestPlan | None:
        """Returns the plan without what the server has rejected with this error; None if nothing can be left out."""
        return self._rejections.without(plan, error, self.plan)

    def _mode_for(self, request: Request, mode: ModelMode) -> ModelMode:
        return mode_for_found_tools(request, mode, self.provider, self._format)

    def _format(self, request: Request, mode: ModelMode) -> Format:
        """Returns the format that the model writes: from the settings, else its template, else its name."""
        match = self._identified.get(mode.chat_template)
        return (
            match.format if match and not mode.call_format and match.by != "nothing" else mode.format_of(request.model)
        )

    def _reply_format(self, request: Request, mode: ModelMode, upstream: UpstreamRequest) -> Format | None:
        """Returns the format of calls in the text of the response; None: the server parses them."""
        if upstream.reply_format:
            return formats.get(upstream.reply_format)
        return None if mode.tool_mode == "native" else self._format(request, mode)

    def _callable_tools(self, request: Request, mode: ModelMode) -> tuple[tuple[Tool, ...], Mapping[str, str]]:
        """Returns the tools that a call may name, under the names that the server gets, and the client's names."""
        tools = text_mode_request.callable_tools(request)
        if not tools:
            return (), {}
        keeps_names = request.dialect == self._dialect.name or mode.tool_mode == "prompt"
        return text_mode_request.rename_tools(tools, ANY_STRING if keeps_names else self._dialect.tool_name_pattern)

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

    def _write_chat(self, request: Request, mode: ModelMode) -> UpstreamRequest:
        """Returns the request in the server's API."""
        as_shown, fallbacks = self._as_shown(request, mode)
        accepted, downgrades = self._as_accepted(as_shown)
        written = self._dialect.write_request(accepted, request.model)
        if fallbacks or downgrades:
            written = written._replace(warnings=(*fallbacks, *downgrades, *written.warnings))
        return written if as_shown is request else written._replace(stop_locally=request.stop)

    def _as_accepted(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """Returns the request as this provider accepts it, and warnings; the input itself if nothing changes."""
        provider = self.provider
        accepted, downgrades = downgrade_tool_choice(request, provider.tool_choice) if provider else (request, ())
        accepted, adapted = adapt_request_schemas(accepted, self._target) if self._target else (accepted, ())
        if provider and provider.reasoning_field and has_part(accepted.messages, Reasoning):
            accepted = msgspec.structs.replace(accepted, reasoning_field=provider.reasoning_field)
        return accepted, (*downgrades, *adapted)

    def _as_shown(self, request: Request, mode: ModelMode) -> tuple[Request, tuple[Notice, ...]]:
        """Returns the request as shown to the model in this mode, and warnings about what is lost."""
        match mode.tool_mode:
            case "native":
                return request, ()
            case "parse":
                restored = with_calls_in_text(self.verbatim_history.restore(request), self.provider)
                return text_mode_request.for_parse_mode(restored), ()
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
        written = completions.write_request(restored, prompt)
        return written._replace(warnings=(*warnings, *written.warnings))

    def remember_rejected_constraint(self, plan: RequestPlan) -> None:
        """Remembers that the server rejected this constraint and responded without it, so that it is not sent again."""
        if len(self._rejected_constraints) >= REJECTED_LIMIT:
            self._rejected_constraints.clear()
        self._rejected_constraints.add(_constraint_key(plan.request, plan.constraint))

    def _constrain(
        self, written: UpstreamRequest, request: Request, constraint: ConstraintFields, without_grammar: bool
    ) -> UpstreamRequest:
        """Returns the request with the fields that constrain the model, unless the server has rejected them."""
        is_free = request.tool_choice.mode == "auto" and not request.response_schema
        if constraint.fields and (
            without_grammar or (is_free and _constraint_key(request, constraint) in self._rejected_constraints)
        ):
            constraint = ConstraintFields(
                {}, () if is_free else (constrained_decoding.unconstrained_warning("the server refused the grammar"),)
            )
        if constraint.reply_format:  # overrides a warning about the server's own tool choice
            warnings = tuple(w for w in written.warnings if w.code != "constraint_not_applied")
            written = written._replace(warnings=warnings)
        return constrained_decoding.with_constraint(written, constraint)

    def _constraint_for(self, request: Request, mode: ModelMode) -> ConstraintFields:
        """Returns the fields that constrain the model to this request's calls, or to the schema of its reply."""
        own = self.provider if self.provider and self.provider.api == self._dialect.name else None
        methods = mode.constrain or (own.constrain if own else ())
        if mode.tool_mode != "prompt":
            methods = tuple(name for name in methods if own and name in own.beside_tools)
            is_honoured = mode.tool_mode == "native" and own is not None and "required" in own.tool_choice
            is_free = request.tool_choice.mode not in ("required", "named") or request.response_schema
            if is_honoured or is_free or not (methods and text_mode_request.callable_tools(request)):
                return _UNCONSTRAINED
        tools, client_names = self._callable_tools(request, mode)
        prompted = mode.endpoint == "completions"
        if prompted and request.response_schema and not tools:
            return constrained_decoding.constrain_to_json(methods, request.response_schema)
        sent_names = {name: sent for sent, name in client_names.items()}
        choice = msgspec.structs.replace(
            request.tool_choice, name=sent_names.get(request.tool_choice.name, request.tool_choice.name)
        )
        return constrained_decoding.constrain_to_calls(
            methods, self._format(request, mode), known_tools(tools), choice, self._target, prompted=prompted
        )


_UNCONSTRAINED: Final = ConstraintFields({})


def _constraint_key(request: Request, constraint: ConstraintFields) -> bytes:
    return sha256(msgspec.json.encode((request.model, constraint.fields))).digest()
