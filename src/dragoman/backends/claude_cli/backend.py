"""The life of the backend: what is installed, which models there are, and one process for each answer."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from dragoman.backends.claude_cli import command, errors, models, single_prompt, versions
from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.claude_cli.conversation import Conversation, to_conversation
from dragoman.backends.claude_cli.discovery import ClaudeInstall, find_claude
from dragoman.backends.claude_cli.process import Process
from dragoman.backends.claude_cli.process_pool import ProcessPool
from dragoman.backends.claude_cli.reaper import Reaper
from dragoman.backends.claude_cli.response import ClaudeResponse
from dragoman.backends.claude_cli.session import Session
from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.core.backend import ExchangeContext, ServedModel
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import AnyEvent, Failure
from dragoman.core.messages import Request
from dragoman.off_loop import off_loop
from dragoman.redaction.redact import secret_variables

log = logging.getLogger("dragoman.backends.claude_cli")

NAME = "claude_cli"


class ClaudeCliBackend:
    """The one that is installed."""

    def __init__(self, config: ClaudeCliConfig, environ: Mapping[str, str]) -> None:
        self._config, self._environ = config, dict(environ)
        self._places = ConcurrencyLimiter(NAME, config.parallel, config.queue)
        self._keeper = Reaper()
        self._pool = ProcessPool(self._launch, config.warm, config.idle_s, config.memory_mb)
        self._installed: ClaudeInstall | None = None
        self._has_budget = True
        """A budget keeps it from asking for more, and does nothing else."""
        self._models = models.list_models(config.models)

    def models(self) -> Sequence[ServedModel]:
        """The aliases of the CLI, and those of the settings."""
        return self._models

    def facts(self, model: str) -> Mapping[str, object]:
        """The version, and how it is asked; see `SupportsReplay`."""
        assert self._installed is not None
        _, version, mode = self._installed
        return {"kind": "claude_cli", "version": version, "mode": mode, "budget": self._has_budget}

    def shown(self, request: Request) -> Request:
        """It remembers none."""
        return request

    def secrets(self) -> Sequence[str]:
        """What its environment holds of keys."""
        return secret_variables(self._environ)

    def resolve_model_name(self, name: str) -> str | None:
        """Its own name of a model that it does not list; None: it is none of its."""
        return models.resolve_model(name)

    async def refresh(self) -> None:
        """It lists no others."""

    async def start(self) -> None:
        """Find out what is installed.

        Raises: ConfigError: nothing is, or what is cannot be used; the message has the line to type.
        """
        self._installed = await find_claude(self._config, self._environ)
        log.info("claude %s, mode %s", self._installed.name, self._installed.mode)

    async def close(self) -> None:
        """End all processes."""
        await self._pool.close()
        await self._keeper.close()

    def state(self) -> Mapping[str, object]:
        """What is installed, and what its processes do."""
        found = self._installed
        return {
            "backend": NAME,
            "ready": found is not None,
            "version": found.name if found else "",
            "mode": found.mode if found else "",
            "active": self._places.active,
            "waiting": self._places.waiting,
            "warm": self._pool.waiting,
            "processes": self._pool.processes,
            "cold_starts": self._pool.cold,
        }

    async def count_tokens(self, request: Request) -> int | None:
        """It counts none."""
        return None

    async def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        """The model's answer.

        Raises: DragomanError: before Start; see `Backend`.
        """
        assert self._installed is not None
        spec, installed = models.model_spec(request), self._installed
        if installed.mode == "native":
            conversation = await off_loop(turn.large, to_conversation, request, spec)
        else:
            conversation = await off_loop(turn.large, single_prompt.to_conversation, request, spec, installed.version)
        if not self._has_budget or installed.version < versions.BUDGET_SINCE:
            conversation = conversation._replace(spec=conversation.spec._replace(again=True))
        kind = conversation.spec if conversation.told_at_start else conversation.spec.warm
        answer = ClaudeResponse(request, turn, conversation)
        async with self._places.acquire(), self._begun(kind, conversation) as session:
            begun = False
            self._pool.warm(kind)  # for the next request, while the model thinks about this one
            try:
                async with aclosing(answer.events(session)) as events:
                    async for event in events:
                        begun = True
                        yield event
            except DragomanError as error:
                if isinstance(error, errors.OverBudgetError):
                    log.warning("claude %s breaks off answers for a budget; from now on it has none", installed.name)
                    self._has_budget = False
                if not begun:
                    raise
                yield Failure(error)

    @asynccontextmanager
    async def _begun(self, kind: ModelSpec, conversation: Conversation) -> AsyncIterator[Session]:
        """A process that has been told the conversation, to its end; another where one has died while it waited.

        Raises: RemoteError: it cannot be had.
        """
        has_waited = True
        while has_waited:
            process, has_waited = await self._pool.take(kind)
            session = Session(process, conversation, self._config.silence_s)
            try:
                if await _begin(session, may_be_dead=has_waited):
                    yield session
                    return
            finally:
                self._pool.end(process)

    async def _launch(self, spec: ModelSpec) -> Process:
        assert self._installed is not None
        config = self._config
        installed = self._installed
        line = [installed.path, *command.arguments(spec, tools=installed.mode == "native")]
        environment = command.environment(self._environ, config.variables, spec, config.retries)
        return await Process.start(line, environment, self._keeper)


async def _begin(session: Session, *, may_be_dead: bool) -> bool:
    """Whether it has been told the conversation.

    Raises: RemoteError: it cannot be, and not for having died while it waited.
    """
    try:
        await session.begin()
    except BackendUnavailableError:
        if not may_be_dead:
            raise
        return False
    return True
