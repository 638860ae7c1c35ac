"""One run of an agent: its gateway, its private folder and its log, from the selected model to the agent's exit."""

import argparse
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman import agents, compose, dialects
from dragoman import config as settings
from dragoman.agents import Agent, LaunchContext, LaunchPlan
from dragoman.backends.embedded.weights import cache_dir
from dragoman.cli import _log_format
from dragoman.cli._common import check_claude_login, gateway_key, get_weights, print_status
from dragoman.cli.run import output, preface
from dragoman.cli.run.child_process import ForegroundProcess, interruptible
from dragoman.cli.run.console_page import show_console_page
from dragoman.cli.run.preface import ANY_TIME_S
from dragoman.cli.run.select_model import RunOptions, SelectedModel, select_from_running, select_model
from dragoman.cli.run.status import Status
from dragoman.compose.records import record_writer
from dragoman.config.console import ConsoleConfig
from dragoman.console.install import console_installer
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway
from dragoman.prompting.prompt_budget import budget_for
from dragoman.server.run import serving

_NO_KEY: Final = "none"
"""For a gateway without keys: agents require one all the same."""
_LOG: Final = "gateway.log"
_PROGRESS: Final = "progress"
_NOT_THERE: Final = (401, 404, 405)


class AgentRun:
    """An agent, and the arguments of the command."""

    def __init__(self, agent: Agent, program: str, args: argparse.Namespace, options: RunOptions) -> None:
        self._agent, self._program, self._args, self._options = agent, program, args, options
        self._attended = ForegroundProcess()

    async def run(self, config: settings.Config, origin: dict[str, str]) -> int:
        """Starts the agent, and returns its exit status.

        Raises:
            ConfigError: it is not clear which model the agent should use.
            InterruptedBySignal: a signal arrived before the agent was started.
        """
        selected = await select_model(config, origin, self._options)
        with _folder() as folder:
            if self._args.dry_run:
                launch = self._launch(selected, selected.offer.url or "http://127.0.0.1:PORT", "(key)", folder)
                print(output.format_launch(launch, folder, os.environ))
                return 0
            if selected.offer.url:
                launch = self._launch(selected, selected.offer.url, _key(selected.config), folder)
                with self._attended.signals():
                    return await self._start(launch, selected, folder)
            with _log(self._args, folder) as log:
                return await self._run_on_new_gateway(selected, folder, log)

    async def printed(self, config: settings.Config, origin: dict[str, str]) -> int:
        """Prints the variables that connect the agent to the running gateway; its files go to a permanent folder.

        Raises: ConfigError: no gateway is running, or the choice of the model is ambiguous.
        """
        selected = await select_from_running(config, origin, self._options)
        folder = self._permanent_folder()
        launch = self._launch(selected, selected.offer.url, _key(selected.config), folder)
        if launch.files:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            _write(launch.files, folder)
        print(output.format_environment(launch, self._args.print_env, os.environ))
        if launch.command[1:]:
            print_status(f"then: {output.quote_command(launch.command, self._args.print_env)}")
        return 0

    async def _run_on_new_gateway(self, selected: SelectedModel, folder: Path, log: "_Log") -> int:
        """Runs the agent on a new gateway at a free loopback port, with a random key."""
        key = secrets.token_urlsafe(24)
        own = msgspec.structs.replace(selected.config.server, host="127.0.0.1", port=0, workers=1, api_keys=(key,))
        config = msgspec.structs.replace(
            selected.config, server=own, console=ConsoleConfig(enabled=bool(self._args.console))
        )
        install_console = console_installer(config)
        with interruptible():  # weights may have to be downloaded first
            gateway = compose.build_gateway(
                config, compose.serves_embedded(config, selected.origin), log.print_status, get_weights
            )
        with self._attended.signals():
            await check_claude_login(config, log.print_status)
            async with serving(gateway, own, config.capture, record_writer(config), install_console) as url:
                log.silent = True
                if self._args.console:
                    await show_console_page(url, key, self._agent.title)
                self._preface(selected, gateway)
                with self._status(gateway, folder) as progress:
                    return await self._start(self._launch(selected, url, key, folder, progress), selected, folder)

    def _preface(self, selected: SelectedModel, gateway: Gateway) -> None:
        """Prints how long the first response will take, and what is trimmed."""
        embedded = selected.config.embedded
        server = selected.config.upstreams.get(selected.offer.server)
        speed, budget = selected.tokens_per_s, server.prompt_tokens if server else 0
        measured = [
            tokens_per_s
            for each in gateway.health()
            if isinstance(tokens_per_s := each.get("read_tokens_per_s"), float)
        ]
        if measured and not server:
            speed = measured[0]
            budget = (
                budget_for(embedded.first_response_target_s, speed, ()).tokens
                if embedded.first_response_target_s < ANY_TIME_S
                else 0
            )
        for line in preface.preface_lines(self._agent, selected.offer.model, speed, budget):
            print_status(line)

    @contextmanager
    def _status(self, gateway: Gateway, folder: Path) -> Iterator[Path]:
        """Shows the progress of reading prompts; yields the file with that line."""
        file = folder / _PROGRESS
        status = Status(file)
        gateway.progress = status.show
        try:
            yield file
        finally:
            gateway.progress = None
            status.close()

    async def _start(self, launch: LaunchPlan, selected: SelectedModel, folder: Path) -> int:
        _write(launch.files, folder)
        context = f", {selected.context_window:,} tokens of context" if selected.context_window else ""
        print_status(f"{self._agent.title} on {selected.offer.model}, {selected.offer.title}{context}")
        for note in (*launch.notes, *self._unknown_context(selected)):
            print_status(note)
        if self._args.debug:
            print(output.format_launch(launch, folder, os.environ), file=sys.stderr)
        environ = {**os.environ, **output.proxy_bypass(os.environ), **launch.environ}
        variables = {name: value for name, value in environ.items() if value is not None}
        return await self._attended.run(launch.command, variables)

    def _unknown_context(self, selected: SelectedModel) -> Iterator[str]:
        """Yields a note if the server does not report its context window."""
        if not selected.context_window and self._agent.programs and (selected.offer.server or selected.offer.url):
            assumed = f"; {self._agent.assumes}" if self._agent.assumes else ""
            yield (
                f"the server does not report the context window of {selected.offer.model}{assumed}: "
                "--context-window TOKENS sets it"
            )

    def _permanent_folder(self) -> Path:
        """Returns the permanent folder for files that printed variables refer to."""
        return cache_dir() / "run" / (self._args.agent or agents.ANY)

    def _launch(
        self, selected: SelectedModel, url: str, key: str, folder: Path, progress: Path | None = None
    ) -> LaunchPlan:
        return self._agent.launch(
            LaunchContext(
                url=url,
                key=key,
                model=selected.offer.model,
                program=self._program,
                args=self._args.args or (),
                environ=os.environ,
                home=Path.home(),
                folder=folder,
                read=_read,
                permanent_folder=self._permanent_folder(),
                context_window=selected.context_window,
                output_tokens=selected.output_tokens,
                has_reasoning=selected.has_reasoning,
                has_web_search=bool(selected.config.tools.web_search.use),
                progress=progress if sys.platform != "win32" else None,
            )
        )


class _Log(logging.Handler):
    """Counts errors, and prints messages to the terminal until the agent uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.wrong = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Counts warnings and errors."""
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        self.wrong += record.levelno >= logging.WARNING or ("error" in facts and not _is_discovery_request(facts))

    def print_status(self, text: str) -> None:
        """Prints what takes long or is missing."""
        if self.silent:
            logging.getLogger("dragoman").info("%s", text)
        else:
            print_status(text)


def _is_discovery_request(facts: Mapping[str, Any]) -> bool:
    """Whether this is an agent's request for another server's API: `GET /api/tags`, `POST /api/show`."""
    served = tuple(dialects.get(name).path for name in dialects.names())
    is_known = facts.get("method") != "GET" and str(facts.get("path")).endswith(served)
    return facts.get("status") in _NOT_THERE and not is_known


@contextmanager
def _log(args: argparse.Namespace, folder: Path) -> Iterator[_Log]:
    """Writes the gateway's log to a file, which is kept if that is asked for, or after an error."""
    file, log = args.log_file or folder / _LOG, _Log()
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))  # readable by the user only
        written = logging.FileHandler(file, mode="a" if args.log_file else "w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the log {file}: {(error.strerror or str(error)).lower()}") from None
    _log_format.configure("text" if args.debug else "json", written, log, debug=args.debug > 1)
    try:
        yield log
    finally:
        written.close()
        if not args.log_file and (log.wrong or args.debug):
            moved = Path(tempfile.mkdtemp(prefix="dragoman-log-")) / _LOG
            shutil.move(file, moved)
            file = moved
        if log.wrong or args.debug:
            problems = f"{log.wrong} line{'s' * (log.wrong != 1)}" if log.wrong else "none"
            print_status(f"log of the gateway: {file}; warnings and errors: {problems}")


@contextmanager
def _folder() -> Iterator[Path]:
    """Yields a private folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="dragoman-run-") as folder:  # created with mode 0700
        yield Path(folder)


def _write(files: Mapping[str, str], folder: Path) -> None:
    """Writes the files, readable by the user only: they contain keys."""
    for name, text in files.items():
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)


def _key(config: settings.Config) -> str:
    return gateway_key(config.server) or _NO_KEY


def _read(path: Path) -> str | None:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
