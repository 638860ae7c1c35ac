"""Tool mode `auto`: how to request a model whose mode the settings leave open, as found by probing it.

    first use of a model ── probed before? → the cached result applies from the first request
        its first response is over ── in the background → same server and same model? if not, probe it
        a tool call leaked all the same → the model is requested in mode `parse`

Requests never wait for a probe, and a model that no client has used is never probed, as the first request may load it.
Until the result is known, the model is requested as the API defines it, and leaked tool calls are recovered.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.model_modes import ModelMode, ModelModes
from dragoman.backends.probe import DECISIVE_CHECKS, evidence, open_context, run_checks, shared_results
from dragoman.backends.probe.cache import CachedProbe, load, store, version
from dragoman.backends.probe.recommend import recommend_trusted
from dragoman.backends.probe.report import Recommendation
from dragoman.backends.probe.server_info import ServerInfo
from dragoman.backends.shared_state import SharedState
from dragoman.catalog import servers
from dragoman.catalog.servers import Provider
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Finish, Notice
from dragoman.state.store import StateStore

log = logging.getLogger("dragoman.backends.http")

RECHECK_INTERVAL_S: Final = 600.0
"""Minimum time between two checks whether the server still serves the same model by this name (a few short GETs)."""
LOOK_INTERVAL_S: Final = 1.0
"""Minimum time between two looks whether another process has stored a result."""
LEAK_WARNING_CODE: Final = "leaked_call_recovered"
"""Code of the warning about a tool call that the server left in the text."""
_PROBE_STARTED: Final = (
    "%s: measuring %s with about ten short requests; upstreams.%s.auto_probe = false switches that off"
)
_LEAK_REASON: Final = "it left a call in the text"


class AutoMode:
    """The probed tool modes of one server's models."""

    def __init__(
        self,
        name: str,
        config: HttpConfig,
        connection: UpstreamConnection,
        modes: ModelModes,
        on_provider_found: Callable[[Provider], None],
        now_s: Callable[[], float] = time.monotonic,
        *,
        can_probe: bool = True,
        shared: SharedState | None = None,
    ) -> None:
        """
        Args:
            name: the server's name in the settings.
            config: the server's settings.
            connection: used for the probe's requests.
            modes: receives the mode that was found for each model.
            on_provider_found: is called with the provider when the settings do not name one.
            now_s: monotonic clock, in seconds.
            can_probe: whether models may be probed; if not, only cached results are used.
            shared: what all processes of the gateway share; None: it has one process.
        """
        self._name, self._config, self._connection, self._modes = name, config, connection, modes
        self._on_provider_found, self._now_s, self._can_probe = on_provider_found, now_s, can_probe
        self._shared = shared or SharedState()
        self._cached: dict[str, CachedProbe | None] = {}
        self._versions: dict[str, int] = {}
        """The version of each cached result, if other processes may replace it."""
        self._looked_at_s: dict[str, float] = {}
        self._checked_at_s: dict[str, float] = {}
        self._leaky: set[str] = set()
        """Models of which at least one leaked tool call was recovered."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    def load_cached(self, model: str) -> None:
        """Applies the cached probe result of this model, if there is one. Call it before each request."""
        if not self._is_replaced(model) and model in self._cached:
            return
        self._adopt(model, load(self._config, model))

    def reload_cached(self, model: str) -> None:
        """Applies the result that was stored for this model, as by a probe that a user asked for."""
        self._adopt(model, load(self._config, model))

    def _adopt(self, model: str, probe: CachedProbe | None) -> None:
        """Applies a result that another process or an earlier one has found."""
        known = self._cached.get(model)
        self._cached[model] = probe or known
        if probe is None or probe == known:
            return
        if known is not None and known.fingerprint != probe.fingerprint:  # another model, which may not leak
            self._leaky.discard(model)
        if model in self._leaky and probe.choice.tool_mode == "native":
            self._save(model, probe.choice, probe.provider, probe.fingerprint)
        else:
            self._apply(probe, "as found before: ")

    def _is_replaced(self, model: str) -> bool:
        """Returns whether another process has stored a result since the last call, which looks once a second."""
        if not self._shared.is_shared or self._now_s() - self._looked_at_s.get(model, -math.inf) < LOOK_INTERVAL_S:
            return False
        self._looked_at_s[model] = self._now_s()
        known, self._versions[model] = self._versions.get(model, 0), version(self._config, model)
        return self._versions[model] != known

    def observe(self, model: str, event: AnyEvent) -> None:
        """Handles one event of this model's response; the end of a response may start a probe."""
        match event:
            case Notice(code) if code == LEAK_WARNING_CODE and self._modes.is_auto(model):
                self._record_leak(model)
            case Finish() if self._can_probe and self._modes.is_auto(model) and self._is_due(model):
                self._checked_at_s[model] = self._now_s()
                task = asyncio.ensure_future(self._probe_or_log(model))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def wait_idle(self) -> None:
        """Waits until all running probes have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels all running probes."""
        for task in self._tasks:
            task.cancel()
        await self.wait_idle()

    def _is_due(self, model: str) -> bool:
        checked_at_s = self._checked_at_s.get(model)
        return checked_at_s is None or self._now_s() - checked_at_s >= RECHECK_INTERVAL_S

    async def _probe_or_log(self, model: str) -> None:
        try:
            async with self._lock, self._shared.probe_lock(f"{self._name}\n{model}"):
                self._looked_at_s.pop(model, None)
                self.load_cached(model)  # what another process has found meanwhile
                if (store := self._shared.store) is None:
                    await self._probe(model)
                else:
                    await self._probe_for_all(model, store)
        except DragomanError as error:
            log.warning("%s: %s could not be measured, and is asked as before: %s", self._name, model, error.message)

    async def _probe_for_all(self, model: str, store: StateStore) -> None:
        """Probes the model, unless another machine has; stores what is found for all."""
        found = await shared_results.fetch(store, self._config, model)
        self._adopt(model, found)
        await self._probe(model)
        if (result := self._cached.get(model)) is not None and result != found:
            await shared_results.offer(store, self._config, model, result)

    async def _probe(self, model: str) -> None:
        context = await open_context(
            ServerInfo(self._connection, self._config.url), self._connection, self._config, model
        )
        provider = context.provider
        fingerprint = await context.server_info.fingerprint(provider, model)
        known = self._cached.get(model)
        if known is not None and known.fingerprint == fingerprint:
            return
        if known is not None:
            self._leaky.discard(model)
            log.info("%s: the server or its model %s has changed; probing again", self._name, model)
        if provider is not None and provider.native == "trusted":
            choice = recommend_trusted(provider)
        else:
            log.info(_PROBE_STARTED, self._name, model, self._name)
            report = await run_checks(context, self._config, DECISIVE_CHECKS)
            if report.choice.tool_mode == "prompt":  # Dragoman constrains the model then
                report = await run_checks(context, self._config, ("constrained",))
            choice = report.choice
            await asyncio.to_thread(evidence.store_report, self._config, report)
        self._save(model, choice, provider.name if provider else "", fingerprint)

    def _record_leak(self, model: str) -> None:
        """Switches the model to mode `parse`, whatever the probe has found or will find."""
        self._leaky.add(model)
        known = self._cached.get(model)
        if self._modes.get(model).tool_mode != "native":
            return
        if known is not None:
            self._save(model, known.choice, known.provider, known.fingerprint)
        else:
            self._modes.set_measured(model, ModelMode("parse", why=_LEAK_REASON))

    def _save(self, model: str, choice: Recommendation, provider: str, fingerprint: str) -> None:
        if choice.tool_mode == "native" and model in self._leaky:
            choice = msgspec.structs.replace(choice, tool_mode="parse", why=_LEAK_REASON)
        probe = self._cached[model] = store(self._config, model, provider, fingerprint, choice)
        self._apply(probe, "")

    def _apply(self, probe: CachedProbe, reason_prefix: str) -> None:
        self._modes.set_measured(probe.model, mode_from(probe.choice, reason_prefix))
        self._modes.get(probe.model)  # logs the mode
        provider = next((each for each in servers.providers() if each.name == probe.provider), None)
        if provider is not None and not self._config.provider:
            self._on_provider_found(provider)


def mode_from(choice: Recommendation, how: str = "") -> ModelMode:
    """Returns the mode that a probe recommends; `how` is put before its reason."""
    return ModelMode(choice.tool_mode, choice.call_format, constrain=choice.constrain, why=f"{how}{choice.why}")
