"""The steps of `dragoman init`, in their order: look, ask, measure, write, offer a service and completion."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

from msgspec.structs import replace

from dragoman import config as settings
from dragoman import extras
from dragoman.backends.embedded import weights
from dragoman.backends.http.config import HttpConfig
from dragoman.cli._common import upstream_flags
from dragoman.cli._terminal import ProgressLine, printable
from dragoman.cli.init import report
from dragoman.cli.init.choices import ModelChoice, find_choice, list_choices
from dragoman.cli.init.files import append_line, write_file
from dragoman.cli.init.machine import Machine, examine_machine
from dragoman.cli.init.measure import NOT_MEASURED, Measurement, is_free, measure, with_context_window
from dragoman.cli.init.questions import Questions, ask_at_terminal
from dragoman.cli.init.service import Service, find_program, find_service
from dragoman.cli.init.settings_text import check_settings, format_tables
from dragoman.cli.init.shell_completion import find_completion
from dragoman.cli.init.tables import settings_tables
from dragoman.cli.pull import download_weights
from dragoman.core.errors import ConfigError, DragomanError

_MAX_SHOWN: Final = 12
"""Maximum number of models in the list to choose from."""
_WIDTH: Final = 100


class Setup:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._is_preview = not args.yes and (args.json or not (sys.stdin.isatty() and sys.stdout.isatty()))
        """Nothing is written."""
        can_ask = not (args.yes or self._is_preview)
        self._questions = Questions(ask_at_terminal if can_ask else None, self._show)
        self._line = ProgressLine(sys.stderr)
        usual = Path(os.environ.get("DRAGOMAN_CONFIG") or settings.default_path())
        self._path: Path = args.output or usual
        is_usual = self._path.absolute() == usual.absolute()
        self._config_option = () if is_usual else ("--config", str(self._path.absolute()))
        self._written: list[Path] = []
        self._columns = get_terminal_size().columns if sys.stdout.isatty() else None

    def run(self) -> int:
        """Runs all steps.

        Raises:
            ConfigError: the file exists, or an option is wrong.
            BackendUnavailableError: the server of `--upstream` does not respond.
        """
        if not self._is_preview:
            self._require_free_path()
        try:
            return self._run()
        except KeyboardInterrupt:
            self._line.clear()
            files = ", ".join(map(str, self._written))
            print(f"\nstopped; {f'written: {files}' if files else 'nothing was written'}", file=sys.stderr)
            return 130

    def _run(self) -> int:
        with self._line.showing("looking for model servers, models and agents"):
            machine = asyncio.run(examine_machine(*self._environment_settings()))
        if not self._is_preview:
            for line in report.found_lines(machine):
                self._show(line)
        choices = list_choices(machine)
        choice = self._choose(choices)
        choice = self._download(choice, machine)
        measured = self._measure(choice, machine)
        if measured.tokens_per_s:
            choice = self._with_context_window(choice)
        local = next((each for each in choices if each.is_embedded), None)
        text = format_tables(settings_tables(machine, choice, local, measured), self._config_option)
        config = check_settings(text)
        if self._is_preview:
            return self._print_preview(machine, choice, config, text)
        self._show("")
        for line in text.splitlines():
            self._show(f"  {line}" if line else "")
        if not self._questions.confirm(f"Write these settings to {report.short_path(self._path)}?", default=True):
            self._show("nothing was written")
            return 0
        copy = write_file(self._path, text, replace=self._args.force)
        self._written.append(self._path)
        self._show(f"written: {self._path}" + (f"; the earlier settings: {copy}" if copy else ""))
        is_running = self._offer_service(config)
        self._offer_completion(machine)
        self._finish(machine, choice, config, text, is_running=is_running)
        return 0

    # Steps

    def _environment_settings(self) -> tuple[settings.Config, HttpConfig | None]:
        """Returns the settings without a file, and the server of `--upstream`."""
        config, _ = settings.load(None, os.environ, upstream_flags(self._args))
        upstream = config.upstreams.get("upstream")
        return replace(config, upstreams={}), upstream

    def _require_free_path(self) -> None:
        if self._path.exists() and not self._args.force:
            raise ConfigError(
                f"{self._path} exists already, and is not overwritten; --force replaces it and keeps a copy, "
                "--output FILE writes another file, `dragoman doctor` checks it"
            )

    def _choose(self, choices: list[ModelChoice]) -> ModelChoice:
        if self._args.model:
            return find_choice(self._args.model, choices)
        width = max(len(choice.name) for choice in choices[:_MAX_SHOWN])
        lines = [report.choice_line(choice, width) for choice in choices]
        names = [choice.name for choice in choices]
        return choices[self._questions.choose("Which model should your agents use?", lines, names, _MAX_SHOWN)]

    def _download(self, choice: ModelChoice, machine: Machine) -> ModelChoice:
        """Downloads the chosen model if the user agrees, and returns it as it then is."""
        if choice.kind != "download" or not self._questions.can_ask:
            return choice
        size = weights.format_size(choice.size_bytes)
        later = "otherwise the first `dragoman serve` does"
        if not self._questions.confirm(f"Download {choice.name} now ({size})? {later.capitalize()}.", default=True):
            return choice
        try:
            download_weights(choice.name)
        except DragomanError as error:
            self._show(f"the download failed: {error.message}")
            return choice
        return choice._replace(kind="file", about=f"{size}, downloaded")

    def _with_context_window(self, choice: ModelChoice) -> ModelChoice:
        if choice.server is None:
            return choice
        return choice._replace(server=asyncio.run(with_context_window(choice.server, choice.name)))

    def _measure(self, choice: ModelChoice, machine: Machine) -> Measurement:
        """Measures the model if that is possible and the user agrees."""
        extra = "embedded" if choice.is_embedded else "server"
        if self._args.no_measure or self._is_preview or choice.kind in ("download", "claude"):
            return NOT_MEASURED
        if extra in machine.missing_extras:
            self._show(
                f"{choice.name} is not measured, which needs more than is installed: {extras.install_command(extra)}"
            )
            return NOT_MEASURED
        if not self._questions.confirm(_measure_question(choice), default=is_free(choice)):
            return NOT_MEASURED
        measured = measure(choice, self._line)
        for line in measured.lines(machine.agents):
            self._show(line)
        if measured.problem:
            self._show(f"{choice.name} could not be measured: {measured.problem}")
        return measured

    def _offer_service(self, config: settings.Config) -> bool:
        """Writes the service if the user agrees, and returns whether it was started."""
        command = [*find_program(), "serve", "--config", str(self._path.absolute())]
        programs = [config.claude_cli.command] if config.claude_cli.enabled else []
        service = find_service(command, programs, os.environ)
        if service is None:
            if self._args.service:
                self._show("no service was written: this system has neither systemd nor launchd")
            return False
        question = f"Start the gateway at each login (writes {report.short_path(service.path)})?"
        if not (self._args.service or self._questions.confirm(question, default=False)):
            return False
        try:
            copy = write_file(service.path, service.text, replace=self._args.force)
        except ConfigError as error:
            self._show(f"no service was written: {error.message}")
            return False
        self._written.append(service.path)
        self._show(f"written: {service.path}" + (f"; the earlier file: {copy}" if copy else ""))
        if any(server.api_key_env for server in config.upstreams.values()):
            self._show(f"the service does not have the API keys of your shell: {service.secrets}")
        return self._start_service(service)

    def _start_service(self, service: Service) -> bool:
        self._show(f"to start it now and at each login: {service.enable_line}")
        if not self._questions.confirm("Run these commands now?", default=False):
            return False
        for command in service.enable:
            done = subprocess.run(command, check=False)
            if done.returncode:
                self._show(f"{command[0]} failed with status {done.returncode}; the gateway was not started")
                return False
        return True

    def _offer_completion(self, machine: Machine) -> None:
        """Adds the line to the shell's startup file if the user agrees."""
        completion = find_completion()
        if completion is None or not self._questions.can_ask:
            return
        if "terminal" in machine.missing_extras:
            self._show(f"\nshell completion needs more than is installed: {extras.install_command('terminal')}")
            return
        question = (
            f"Complete `dragoman` at Tab in {completion.shell}, by a line in {report.short_path(completion.path)}?"
        )
        if not self._questions.confirm(question, default=False):
            return
        try:
            append_line(completion.path, completion.line)
        except ConfigError as error:
            self._show(error.message)
            return
        self._written.append(completion.path)
        self._show(f"added to {completion.path}; it takes effect in the next shell")

    # Output

    def _show(self, text: str) -> None:
        """Prints lines, wrapped at the width of a terminal."""
        if not self._args.json:
            for line in text.split("\n"):
                print(report.wrap(printable(line), self._columns), flush=True)

    def _finish(
        self, machine: Machine, choice: ModelChoice, config: settings.Config, text: str, *, is_running: bool
    ) -> None:
        steps = report.next_steps(machine, choice, config, self._config_option, is_running=is_running)
        if self._args.json:
            self._print_json(machine, choice, text, steps, is_written=True)
            return
        notes = report.notes(machine, choice)
        for line in ["", *notes, *([""] if notes else []), "Next:"]:
            self._show(line)
        for line in report.format_steps(steps, min(self._columns or _WIDTH, _WIDTH)):
            self._show(line)

    def _print_preview(self, machine: Machine, choice: ModelChoice, config: settings.Config, text: str) -> int:
        """Prints the settings, and how they are written."""
        if self._args.json:
            steps = report.next_steps(machine, choice, config, self._config_option, is_running=False)
            self._print_json(machine, choice, text, steps, is_written=False)
            return 0
        print(text, end="", flush=True)
        exists = self._path.exists() and not self._args.force
        advice = (
            "dragoman init --yes --force (a copy of the existing file is kept)" if exists else "dragoman init --yes"
        )
        for line in (*report.notes(machine, choice), f"nothing was written; to write this to {self._path}: {advice}"):
            print(printable(f"dragoman: {line}"), file=sys.stderr)
        return 0

    def _print_json(
        self, machine: Machine, choice: ModelChoice, text: str, steps: Sequence[report.NextStep], *, is_written: bool
    ) -> None:
        result = {
            "found": {
                "servers": [
                    {
                        "name": server.name,
                        "title": server.title,
                        "url": server.config.url,
                        "models": server.models,
                        "requires_key": server.requires_key,
                    }
                    for server in machine.servers
                ],
                "models": [
                    {"name": model.id, "path": str(model.path), "size_bytes": model.size_bytes, "origin": model.origin}
                    for model in machine.files
                ],
                "agents": machine.agents,
                "gateway": machine.gateway_url,
            },
            "model": choice.name,
            "path": str(self._path),
            "written": [str(path) for path in self._written] if is_written else [],
            "settings": text,
            "notes": report.notes(machine, choice),
            "next": [step._asdict() for step in steps],
        }
        print(json.dumps(result, ensure_ascii=False, indent=2))


def _measure_question(choice: ModelChoice) -> str:
    if choice.server is None:
        return f"Measure how fast {choice.name} reads here (it is loaded for a moment)?"
    place = f"{choice.name} of {choice.server.title}"
    return f"Test the speed and the tool calls of {place}, with about ten short requests?"
