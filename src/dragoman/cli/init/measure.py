"""Measures the chosen model: how fast it reads prompts, and for a server which tool mode suits it."""

import asyncio
import logging
import os
import sys
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman import agents
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.catalog import servers
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.init.choices import ModelChoice
from dragoman.cli.init.machine import FoundServer
from dragoman.cli.run.context_window import reported_context_window
from dragoman.cli.run.preface import FIRST_RESPONSE_S, is_local, reading_speed
from dragoman.compose import embedded_weights
from dragoman.core.errors import DragomanError

_LOAD_S: Final = 180.0
"""Time to load a model and to measure it."""
_BUSY: Final = 1.2


class Measurement(NamedTuple):
    """What was measured, or why it was not."""

    model: str = ""
    tokens_per_s: float = 0.0
    """Speed of reading prompts; 0: not measured."""
    tool_mode: str = ""
    """The recommended tool mode of a server, with the reason."""
    problem: str = ""
    load: float = 0.0
    """Load of the machine for each core; above 1 it was busy."""

    def lines(self, agent_names: tuple[str, ...]) -> list[str]:
        """Returns the results for the user: clauses without a full stop.

        Args:
            agent_names: the installed agents.
        """
        lines, largest = list[str](), largest_prompt(agent_names)
        if self.tokens_per_s:
            busy = f" while other programs were busy (load {self.load:.1f} a core)" if self.load > _BUSY else ""
            lines.append(f"{self.model} reads {self.tokens_per_s:.0f} tokens/s{busy}")
        if self.tokens_per_s and largest:
            first_s = largest[1] / self.tokens_per_s
            lines.append(f"{largest[0]} sends {largest[1]:,} tokens first, which take {_duration(first_s)}")
            if self.is_slow(agent_names):
                lines.append(f"so its instructions and tools are trimmed to what is read in {FIRST_RESPONSE_S:.0f} s")
        return lines + ([f"tool calls work best in mode {self.tool_mode}"] if self.tool_mode else [])

    def is_slow(self, agent_names: tuple[str, ...]) -> bool:
        """Whether the first answer of an agent would take too long without trimming."""
        largest = largest_prompt(agent_names)
        return bool(self.tokens_per_s and largest and largest[1] / self.tokens_per_s > FIRST_RESPONSE_S)


NOT_MEASURED: Final = Measurement()


def largest_prompt(agent_names: tuple[str, ...]) -> tuple[str, int] | None:
    """Returns the agent with the largest first request and its tokens, or None if no size is known."""
    known = [agents.get(name) for name in agent_names if agents.get(name).prompt_tokens]
    return max(((agent.title, agent.prompt_tokens) for agent in known), key=lambda each: each[1], default=None)


def is_free(choice: ModelChoice) -> bool:
    """Whether requests to the model surely cost nothing, because it runs on this machine."""
    return choice.is_embedded or (choice.server is not None and is_local(choice.server.config))


def measure(choice: ModelChoice, line: ProgressLine) -> Measurement:
    """Returns the measurement of a model; errors are part of it.

    Args:
        choice: the model: of a server, or one whose weights are on this machine.
        line: shows what is being done.
    """
    handler = logging.NullHandler()
    logging.getLogger("dragoman").addHandler(handler)  # failures are reported below
    try:
        if choice.server is not None:
            return asyncio.run(_measure_server(choice.server, choice.name, line))
        return asyncio.run(_measure_embedded(choice, line))
    except TimeoutError:
        return Measurement(choice.name, problem=f"it took over {_LOAD_S:.0f} s")
    except DragomanError as error:
        return Measurement(choice.name, problem=error.message)
    finally:
        logging.getLogger("dragoman").removeHandler(handler)


async def _measure_embedded(choice: ModelChoice, line: ProgressLine) -> Measurement:
    from dragoman.backends.embedded.embedded_model import EmbeddedModel

    # With a target, the model measures its speed when it is loaded.
    load = _load()
    config = EmbeddedConfig(model=choice.setting, max_concurrency=1, first_response_target_s=FIRST_RESPONSE_S)
    with line.showing(f"loading {choice.name}"), line.counting_seconds():
        async with asyncio.timeout(_LOAD_S):
            path = await asyncio.to_thread(embedded_weights.find_weights, config)
            model = EmbeddedModel.from_config(config, path, line.print)
            try:
                await model.start()
                second = await model.engine.reading_speed()  # the file is in memory now
                return Measurement(choice.name, max(model.tokens_per_s, second), load=load)
            finally:
                await model.close()


async def _measure_server(server: FoundServer, model: str, line: ProgressLine) -> Measurement:
    """Measures the speed, then probes the tool mode, and stores that for the gateway."""
    from dragoman.backends.probe import DECISIVE_CHECKS, probe
    from dragoman.backends.probe.cache import store

    load = _load()
    with line.showing(f"measuring how fast {model} reads"), line.counting_seconds():
        speed = await reading_speed(server.config, model)
        try:
            report = await probe(
                server.config,
                os.environ,
                model,
                check_names=DECISIVE_CHECKS,
                report_progress=lambda what: line.print(f"testing {model}: {what}"),
            )
        except DragomanError as error:
            return Measurement(model, speed, problem=error.message, load=load)
    store(server.config, report.model, report.provider, report.fingerprint, report.choice)
    return Measurement(model, speed, f"{report.choice.tool_mode}: {report.choice.why}", load=load)


async def with_context_window(server: FoundServer, model: str) -> FoundServer:
    """Returns the server with its context window, if it truncates longer prompts without an error."""
    provider = server.config.provider
    if not (provider and servers.get(provider).cuts) or server.config.context_window:
        return server
    try:
        window, _ = await reported_context_window(server.config, model)
    except DragomanError:
        return server
    return server._replace(config=replace(server.config, context_window=window))


def _load() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1) if sys.platform != "win32" else 0.0


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
