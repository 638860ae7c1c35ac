"""The backend: the installed CLI, its models, and one process for each response."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from dragoman.backends.claude_cli import command, errors, models, single_prompt, versions
from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.claude_cli.conversation import Conversation, to_conversation
from dragoman.backends.claude_cli.discovery import ClaudeInstall, find_claude
from dragoman.backends.claude_cli.process import Process
from dragoman.backends.claude_cli.process_pool import ProcessPool
from dragoman.backends.claude_cli.response import ClaudeResponse
from dragoman.backends.claude_cli.session import ClaudeSession
from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.backends.quota import UpstreamQuota
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel, UpstreamFacts
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import Failure
from dragoman.core.messages import Request
from dragoman.off_loop import off_loop
from dragoman.process_reaper.reaper import Reaper
from dragoman.redaction.redact import secret_variables

log = logging.getLogger("dragoman.backends.claude_cli")

NAME = "claude_cli"


class ClaudeCliBackend(Backend):
    """The installed Claude Code CLI as a backend."""

    name = NAME

    def __init__(self, config: ClaudeCliConfig, environ: Mapping[str, str]) -> None:
        self._config, self._environ = config, dict(environ)
        self._places = ConcurrencyLimiter(NAME, config.max_concurrency, config.max_queue)
        self._quota = UpstreamQuota(NAME)
        self._reaper = Reaper()
        self._pool = ProcessPool(
            self._launch, config.warm_processes, config.idle_timeout_s, config.warm_memory_limit_mb
        )
        self._installed: ClaudeInstall | None = None
        self._has_budget = True
        """A budget stops the CLI from sending further requests by itself, and does nothing else."""
        self._models = models.list_models(config.models)

    def models(self) -> Sequence[ServedModel]:
        """Returns the CLI's aliases, and the models of the settings."""
        return self._models

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns the version and the mode; see `Backend`."""
        assert self._installed is not None
        _, version, mode = self._installed
        return {"kind": "claude_cli", "version": version, "mode": mode, "budget": self._has_budget}

    def secret_values(self) -> Sequence[str]:
        """Returns the API keys of its environment."""
        return secret_variables(self._environ)

    def resolve_model_name(self, name: str) -> str | None:
        """Returns the CLI's name of a model that is not listed, or None if it is not a Claude model."""
        return models.resolve_model(name)

    async def start(self) -> None:
        """Finds the installed CLI.

        Raises: ConfigError: it is not installed or cannot be used; the message says what to run.
        """
        self._installed = await find_claude(self._config, self._environ)
        log.info("claude %s, mode %s", self._installed.name, self._installed.mode)

    async def close(self) -> None:
        """Terminates all processes."""
        try:
            await self._pool.close()
        finally:
            await self._reaper.close()

    def health(self) -> Mapping[str, object]:
        """Returns the version, and the number of processes and requests."""
        installed = self._installed
        return {
            "backend": NAME,
            "ready": installed is not None,
            "version": installed.name if installed else "",
            "mode": installed.mode if installed else "",
            "active": self._places.active,
            "waiting": self._places.waiting,
            "warm": self._pool.waiting,
            "processes": self._pool.processes,
            "cold_starts": self._pool.cold,
        }

    def upstream_facts(self, model: str) -> UpstreamFacts:
        """Returns what spans tell about the server; see `Backend`."""
        return UpstreamFacts("anthropic")

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the response.

        Raises: DragomanError: before Start; see `Backend`.
        """
        assert self._installed is not None
        self._quota.ensure_available(request.model)
        spec, installed = models.model_spec(request), self._installed
        if installed.mode == "native":
            conversation = await off_loop(context.is_large, to_conversation, request, spec)
        else:
            conversation = await off_loop(
                context.is_large, single_prompt.to_conversation, request, spec, installed.version
            )
        if not self._has_budget or installed.version < versions.BUDGET_SINCE:
            conversation = conversation._replace(spec=conversation.spec._replace(may_reask=True))
        kind = conversation.spec if conversation.needs_start_settings else conversation.spec.warm
        answer = ClaudeResponse(request, context, conversation)
        async with self._places.acquire(), self._open_session(kind, conversation) as session:
            has_started = False
            self._pool.warm(kind)  # for the next request, while the model works on this one
            try:
                async with aclosing(answer.events(session)) as events:
                    async for batch in events:
                        has_started = True
                        yield batch
            except DragomanError as error:
                self._quota.observe(request.model, error)
                if isinstance(error, errors.OverBudgetError):
                    log.warning("claude %s breaks off answers for a budget; from now on it has none", installed.name)
                    self._has_budget = False
                if not has_started:
                    raise
                yield [Failure(error)]
            else:
                self._quota.clear(request.model)

    @asynccontextmanager
    async def _open_session(self, kind: ModelSpec, conversation: Conversation) -> AsyncIterator[ClaudeSession]:
        """Yields a session whose process has received the conversation; replaces a process that died while it waited.

        Raises: RemoteError: no process can be started.
        """
        has_waited = True
        while has_waited:
            process, has_waited = await self._pool.acquire(kind)
            session = ClaudeSession(process, conversation, self._config.stall_timeout_s)
            try:
                if await _begin(session, may_be_dead=has_waited):
                    yield session
                    return
            finally:
                self._pool.stop(process)

    async def _launch(self, spec: ModelSpec) -> Process:
        assert self._installed is not None
        config = self._config
        installed = self._installed
        line = [installed.path, *command.arguments(spec, tools=installed.mode == "native")]
        environment = command.environment(self._environ, config.env_passthrough, spec, config.max_retries)
        return await Process.start(line, environment, self._reaper)


async def _begin(session: ClaudeSession, *, may_be_dead: bool) -> bool:
    """Returns whether the process accepted the conversation; False if it had died while it waited.

    Raises: RemoteError: it failed for another reason.
    """
    try:
        await session.begin()
    except BackendUnavailableError:
        if not may_be_dead:
            raise
        return False
    return True
