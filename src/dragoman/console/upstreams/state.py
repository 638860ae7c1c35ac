"""The state of each backend: health, circuit breaker, queue, quota, models, modes, and what its probes found."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.circuit_breaker import COOL_DOWN_S
from dragoman.config import Config
from dragoman.console.upstreams.probes import named_values, stored_probes
from dragoman.console.upstreams.views import (
    BackendKind,
    BreakerStateName,
    FailureView,
    ModeView,
    QuotaView,
    UpstreamState,
    UpstreamView,
)
from dragoman.core.backend import Backend
from dragoman.gateway.routing.router import backend_name

MAX_MODELS: Final = 200
MAX_MODES: Final = 50
_REASON_CHARS: Final = 200
_OWN_FIELDS: Final = frozenset(
    ("backend", "url", "ready", "active", "waiting", "breaker", "limited_s", "models", "restarts", "warm")
)
"""Fields of `Backend.health` that have a place of their own."""
_TITLES: Final[Mapping[BackendKind, str]] = {
    "http": "a server of an unknown provider",
    "embedded": "embedded models (llama.cpp)",
    "claude_cli": "Claude Code CLI",
    "other": "a backend of another package",
}


class _Condition(NamedTuple):
    state: UpstreamState
    explanation: str


class _Limits(NamedTuple):
    max_concurrency: int | None = None
    max_queue: int | None = None


def kind_of(backend: Backend) -> BackendKind:
    """Returns what kind of backend it is, also if another process runs it."""
    if isinstance(backend, HttpBackend):
        return "http"
    if isinstance(backend.health().get("models"), Mapping):
        return "embedded"
    return "claude_cli" if backend_name(backend) == "claude_cli" else "other"


def upstream_view(backend: Backend, config: Config, failures: list[FailureView]) -> UpstreamView:
    """Returns the state of a backend, without its probes, which are read from files.

    Args:
        backend: the backend.
        config: the settings of the gateway.
        failures: its last failures.
    """
    health, name, kind = backend.health(), backend_name(backend), kind_of(backend)
    server = backend if isinstance(backend, HttpBackend) else None
    provider = server.planner.provider if server else None
    models = [model.id for model in backend.models()]
    quota = _quota(health)
    condition = _condition(health, kind, name, quota, failures)
    limits = _limits(backend, config, kind)
    modes = _modes(server) if server else []
    return UpstreamView(
        name=name,
        kind=kind,
        url=str(health.get("url", "")),
        provider=provider.name if provider else "",
        title=provider.title if provider else _TITLES[kind],
        api=server.config.api if server else "",
        state=condition.state,
        explanation=condition.explanation,
        breaker=_breaker(health),
        active=_count(health, "active"),
        waiting=_count(health, "waiting"),
        max_concurrency=limits.max_concurrency,
        max_queue=limits.max_queue,
        quota=quota,
        models=models[:MAX_MODELS],
        model_count=len(models),
        modes=modes[:MAX_MODES],
        facts=named_values({key: value for key, value in health.items() if key not in _OWN_FIELDS}),
        failures=failures,
        can_probe=server is not None,
        probes=[],
    )


def with_probes(view: UpstreamView, backend: Backend) -> UpstreamView:
    """Returns the state with the stored probes of its models, and their provider if no request has found it yet.

    Reads a file for each model.

    Args:
        view: the state of the backend.
        backend: the backend.
    """
    if not isinstance(backend, HttpBackend):
        return view
    models = dict.fromkeys([*backend.modes.known(), *(model.id for model in backend.models()[:MAX_MODELS])])
    probes = stored_probes(backend.name, backend.config, models)
    found = next((probe for probe in probes if probe.provider), None)
    if found is None or view.provider:
        return replace(view, probes=probes)
    return replace(view, probes=probes, provider=found.provider, title=found.title)


def _quota(health: Mapping[str, object]) -> list[QuotaView]:
    limited = health.get("limited_s")
    items = limited.items() if isinstance(limited, Mapping) else ()
    return [QuotaView(model=str(model), seconds=int(seconds)) for model, seconds in items]


def _breaker(health: Mapping[str, object]) -> BreakerStateName:
    state = health.get("breaker")
    return state if state == "closed" or state == "open" or state == "trying" else ""


def _count(health: Mapping[str, object], name: str) -> int | None:
    value = health.get(name)
    return value if isinstance(value, int) else None


def _condition(
    health: Mapping[str, object],
    kind: BackendKind,
    name: str,
    quota: Sequence[QuotaView],
    failures: Sequence[FailureView],
) -> _Condition:
    """Returns the state in one word, and what it means and what to do."""
    breaker = _breaker(health)
    if breaker == "open":
        return _Condition(
            "failing",
            f"Its last requests failed, so it gets no requests for {COOL_DOWN_S:g} seconds; then one request tests it. "
            "Its last failures are listed. Check that the server runs and that the URL is right.",
        )
    if breaker == "trying":
        return _Condition("trying", "Its last requests failed; one request tests it now, and others wait or fail over.")
    if not health.get("ready"):
        return _Condition("unavailable", _UNAVAILABLE[kind].format(name=name))
    if quota:
        models = ", ".join(each.model for each in quota[:3])
        return _Condition(
            "limited", f"A limit of its vendor is reached for {models}: requests use other upstreams until it is reset."
        )
    if failures:
        reason = failures[0].reason[:_REASON_CHARS]
        return _Condition("ready", f"It gets requests. The last of its failures within a day: {reason}")
    return _Condition("ready", "It gets requests.")


_UNAVAILABLE: Final[Mapping[BackendKind, str]] = {
    "http": "It lists no model. Start the server and load a model there, or name its models: upstreams.{name}.models.",
    "embedded": "No model is ready: it is being loaded, or its engine is being restarted. The log has the reason.",
    "claude_cli": "The program claude is not installed, or cannot be used; `dragoman doctor` has the reason.",
    "other": "It is not ready; the log may have the reason.",
}


def _limits(backend: Backend, config: Config, kind: BackendKind) -> _Limits:
    if isinstance(backend, HttpBackend):
        return _Limits(backend.config.max_concurrency, backend.config.max_queue)
    if kind == "embedded":
        return _Limits(config.embedded.max_concurrency, config.embedded.max_queue)
    if kind == "claude_cli":
        return _Limits(config.claude_cli.max_concurrency, config.claude_cli.max_queue)
    return _Limits()


def _modes(server: HttpBackend) -> list[ModeView]:
    return [
        ModeView(
            model=model,
            tool_mode=mode.tool_mode,
            call_format=mode.call_format,
            endpoint=mode.endpoint,
            constrain=list(mode.constrain),
            why=mode.why,
            is_auto=server.modes.is_auto(model),
        )
        for model, mode in server.modes.known().items()
    ]
