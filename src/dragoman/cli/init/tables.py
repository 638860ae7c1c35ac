"""Decides which settings are written: for the servers that were found, and for the chosen model."""

import os
from collections.abc import Mapping
from datetime import date
from typing import Final, NamedTuple

import msgspec

from dragoman import agents
from dragoman import config as settings
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import models as catalog
from dragoman.cli.init.choices import ModelChoice, is_agent_model, is_small_enough
from dragoman.cli.init.machine import FoundServer, Machine
from dragoman.cli.init.measure import NOT_MEASURED, Measurement
from dragoman.cli.run.preface import FIRST_RESPONSE_S
from dragoman.prompting.prompt_budget import budget_for

_WINDOWS: Final = ((32_768, 2), (32_768, 1), (16_384, 1))
"""Context windows in tokens and concurrency slots with which an agent can work, best first."""
_MAX_LISTED: Final = 6
_WRITTEN: Final = ("url", "provider", "api", "api_key_env", "context_window")
"""Settings of a server that are written if they differ from their defaults."""


class SettingsTable(NamedTuple):
    """A table of the settings file."""

    name: str
    values: Mapping[str, object]
    remarks: tuple[str, ...] = ()
    """Lines above it."""
    is_active: bool = True
    """Otherwise its lines begin with `#`."""


def settings_tables(
    machine: Machine, choice: ModelChoice, local: ModelChoice | None = None, measured: Measurement = NOT_MEASURED
) -> list[SettingsTable]:
    """Returns the tables to write.

    Args:
        machine: what was found.
        choice: the model that agents use.
        local: the model to suggest in `[embedded]` if `choice` is not embedded; None: none.
        measured: the measurement of `choice`.
    """
    lines = measured.lines(machine.agents)
    results = (f"Measured on {date.today().isoformat()}: {'; '.join(lines)}.",) if lines else ()
    tables = [_server_table(machine)]
    own = choice.server.name if choice.server else ""
    remarks: tuple[str, ...]
    for server in sorted(machine.servers, key=lambda each: each.name != own):
        if choice.server is not None and server.name == own:
            tables.append(_chosen_upstream(choice.server, machine, measured, results))
        else:
            tables.append(_upstream_table(server))
    if machine.has_claude_login or choice.kind == "claude":
        remarks = ("Claude Code's own models, with your login, for all programs on this machine that ask the gateway.",)
        tables.append(SettingsTable("claude_cli", {"enabled": True}, remarks, choice.kind == "claude"))
    if choice.is_embedded:
        remarks = (f"{choice.name} ({weights.format_size(choice.size_bytes)}), which Dragoman runs itself.", *results)
        tables.append(SettingsTable("embedded", _embedded_values(choice, machine, measured), remarks))
    elif local is not None:
        remarks = ("A model that Dragoman runs itself. The other models on this machine are then served too.",)
        tables.append(SettingsTable("embedded", _embedded_values(local, machine, NOT_MEASURED), remarks, False))
    return tables


def _server_table(machine: Machine) -> SettingsTable:
    default = settings.Config().server.port
    if machine.port == default:
        return SettingsTable("server", {"port": default}, ("The gateway.",), False)
    is_set = "DRAGOMAN_SERVER_PORT" in os.environ
    reason = "the port is that of DRAGOMAN_SERVER_PORT" if is_set else f"another program uses port {default}"
    return SettingsTable("server", {"port": machine.port}, (f"The gateway; {reason}.",))


def _upstream_table(server: FoundServer) -> SettingsTable:
    listed = ", ".join(server.models[:_MAX_LISTED]) + (", …" if len(server.models) > _MAX_LISTED else "")
    values = {
        name: value
        for name, value in msgspec.structs.asdict(server.config).items()
        if name in _WRITTEN and value != getattr(HttpConfig(url=""), name)
    }
    if server.requires_key:
        remark = f"{server.title} requires an API key: put the key in a variable, and name the variable here."
        values["api_key_env"] = f"{server.name.upper()}_API_KEY"
        return SettingsTable(f"upstreams.{server.name}", values, (remark,), False)
    return SettingsTable(f"upstreams.{server.name}", values, (f"{server.title}: {listed or 'lists no model yet'}.",))


def _chosen_upstream(
    server: FoundServer, machine: Machine, measured: Measurement, results: tuple[str, ...]
) -> SettingsTable:
    table = _upstream_table(server)
    trimming: dict[str, object] = {}
    if measured.is_slow(machine.agents):
        budget = budget_for(FIRST_RESPONSE_S, measured.tokens_per_s, _agent_tools(machine.agents))
        trimming = {"prompt_tokens": budget.tokens, "tools": budget.tools}
    return table._replace(values={**table.values, **trimming}, remarks=(*table.remarks, *results))


def _embedded_values(choice: ModelChoice, machine: Machine, measured: Measurement) -> dict[str, object]:
    values: dict[str, object] = {"model": choice.setting}
    if is_agent_model(choice) and (window := _window(choice, machine.memory_bytes)):
        values |= {"context_window": window[0]} | ({"max_concurrency": 1} if window[1] == 1 else {})
    if measured.is_slow(machine.agents):
        values |= {"first_response_target_s": round(FIRST_RESPONSE_S), "tools": _agent_tools(machine.agents)}
    return values


def _window(choice: ModelChoice, memory_bytes: int | None) -> tuple[int, int] | None:
    """Returns the context window and the number of slots for an agent; None: the default, for lack of memory."""
    trained = choice.shape.context_window if choice.shape else catalog.get(choice.name).context_window
    for window, slots in ((min(trained, window), slots) for window, slots in _WINDOWS):
        if is_small_enough(choice, memory_bytes, EmbeddedConfig(context_window=window, max_concurrency=slots)):
            return window, slots
    return None


def _agent_tools(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the ordinary tools of all these agents, each once."""
    return tuple(dict.fromkeys(tool for name in names for tool in agents.get(name).tools))
