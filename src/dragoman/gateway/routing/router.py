"""Selects the backends that serve a model, by its name, an alias, or a name that a backend resolves."""

import asyncio
import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dragoman import dialects
from dragoman.core.backend import Attempts, Backend, ServedModel
from dragoman.core.client import ANONYMOUS, ClientFacts, Permissions
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    DragomanError,
    NotAskedError,
    RemoteError,
    UnknownModelError,
    UpstreamError,
    loggable_message,
    one_of,
    quote,
)
from dragoman.core.events import Notice
from dragoman.core.messages import Request
from dragoman.gateway.routing.condition import has_images
from dragoman.gateway.routing.route import RouteDecision, Routes

log = logging.getLogger("dragoman.gateway.gateway")


class ModelRoute(NamedTuple):
    """A backend that serves a request."""

    backend: Backend
    request: Request
    """The request under the backend's own name of the model."""


class Router:
    """The backends by the names of their models."""

    def __init__(
        self,
        backends: Sequence[Backend],
        model_aliases: Mapping[str, str | Sequence[str]],
        rules: Routes | None = None,
    ) -> None:
        """
        Args:
            backends: All backends, the preferred ones first.
            model_aliases: Other names of models; a name for several models is a fallback list.
            rules: Rules that select models; None: the client's choice applies.
        """
        self._rules = rules
        self._backends = tuple(backends)
        self._model_aliases = {alias: alias_targets(targets) for alias, targets in model_aliases.items()}
        self._indexed: list[Sequence[ServedModel] | None] = [None] * len(self._backends)
        """The lists of models that the index was built from."""
        self._index: dict[str, list[tuple[Backend, str]]] = {}
        """By each listed name: the backends that list it, each with its own name of the model."""

    def check_aliases(self, second_opinion: str = "") -> None:
        """Rejects settings that name an unknown model; not while a backend does not know its models yet.

        Args:
            second_opinion: The model of `guard.second_opinion`; empty: there is none.

        Raises:
            ConfigError: No backend serves a model that an alias, a rule or this setting names.
        """
        known = self._models_by_name()
        for alias, target in ((alias, target) for alias, targets in self._model_aliases.items() for target in targets):
            if not self._providers_of(target) and all(backend.models() for backend in self._backends):
                raise unknown_alias_target(alias, target, known)
        targets = [(second_opinion, "guard.second_opinion")] if second_opinion else []
        for name, place in (*targets, *(self._rules.targets() if self._rules else ())):
            if not self._named(name) and all(backend.models() for backend in self._backends):
                raise unknown_target(name, known, place)

    def is_alias(self, model: str) -> bool:
        """Returns whether the name is an alias of the settings."""
        return model in self._model_aliases

    def models(self, client: ClientFacts = ANONYMOUS) -> list[ServedModel]:
        """Returns all models that the client can request, each name once: the models' own names, then aliases."""
        known = self._models_by_name()
        first = {alias: next(filter(self._providers_of, targets), "") for alias, targets in self._model_aliases.items()}
        named = {alias: _as_alias(known.get(m, ServedModel(m)), alias) for alias, m in first.items() if m}
        models = list((known | named).values())
        if (permissions := client.permissions) is None:
            return models
        return [model for model in models if self._may_list(Request(model.id, ()), permissions)]

    def routes(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[ModelRoute]:
        """Returns the backends that serve the model, in order of preference.

        Args:
            request: The request.
            client: Who sent it.

        Raises:
            UnknownModelError: No backend offers the model.
            BackendUnavailableError: A backend that may offer it is not ready yet.
        """
        permissions = client.permissions
        served = (
            self._serving(request, client) if permissions is None else self._permitted(request, client, permissions)
        )
        if served:
            return [
                ModelRoute(backend, request if id == request.model else msgspec.structs.replace(request, model=id))
                for backend, id in served
            ]
        known = [model.id for model in self.models(client)]
        if waiting := self._waiting_for(request, permissions):
            raise BackendUnavailableError(
                f"unknown model {quote(request.model)}, but {' and '.join(waiting)} may have it and is not ready yet",
                retry_after_s=3,
            )
        raise UnknownModelError(request.model, known, "" if permissions is None else client.key)

    def _permitted(
        self, request: Request, client: ClientFacts, permissions: Permissions
    ) -> Sequence[tuple[Backend, str]]:
        """As `_serving`, without what an API key may not use."""
        if not permissions.admits_model(*_requested_names(request)):
            return ()
        return [each for each in self._serving(request, client) if permissions.admits_upstream(backend_name(each[0]))]

    def _may_list(self, request: Request, permissions: Permissions) -> bool:
        served = self._serving_by_name(request) if permissions.admits_model(request.model) else ()
        return any(permissions.admits_upstream(backend_name(backend)) for backend, _ in served)

    def _waiting_for(self, request: Request, permissions: Permissions | None) -> list[str]:
        """Returns the names of the backends that may serve the model, but do not know their models yet."""
        waiting = [backend_name(backend) for backend in self._backends if not backend.models()]
        if permissions is None:
            return waiting
        is_admitted = permissions.admits_model(*_requested_names(request))
        return [name for name in waiting if is_admitted and permissions.admits_upstream(name)]

    def _serving(self, request: Request, client: ClientFacts) -> Sequence[tuple[Backend, str]]:
        """Returns the backends that serve the model, each once, with its own name of the model."""
        decision = None if self._rules is None else self._rules.decide(request, client, self._load)
        if decision is not None and decision.models:
            return self._serving_one_of(decision)
        return self._serving_by_name(request)

    def _serving_by_name(self, request: Request) -> Sequence[tuple[Backend, str]]:
        """As `_serving`, without rules."""
        model, aliases = request.model, self._model_aliases
        if model not in aliases and (served := self._listed_by(model)):  # the most frequent case
            return served
        own = dialects.get(request.dialect).resolve_display_name(model) if request.dialect else model
        for find in (self._listed_by, self._resolved_by):
            for name in (model, own):
                targets = aliases.get(name)
                served = find(name) if targets is None else [s for m in targets for s in self._providers_of(m)]
                if served:
                    return list(dict.fromkeys(served))
        return ()

    def _serving_one_of(self, decision: RouteDecision) -> Sequence[tuple[Backend, str]]:
        """Returns the backends that serve the models of a rule.

        Raises:
            BackendUnavailableError: None of them is known to be served.
        """
        if served := [each for name in decision.models for each in self._named(name)]:
            return list(dict.fromkeys(served))
        names = " or ".join(map(quote, decision.models))
        raise BackendUnavailableError(
            f"route {decision.rule.name} sends this request to {names}, which no backend serves now", retry_after_s=3
        )

    def _named(self, name: str) -> list[tuple[Backend, str]]:
        """Returns the backends that serve a model or an alias."""
        targets = self._model_aliases.get(name)
        return self._providers_of(name) if targets is None else [s for m in targets for s in self._providers_of(m)]

    def _load(self, name: str) -> float:
        """Returns the number of requests that the preferred backend of a model has; infinite if it accepts none now."""
        return next((requests_of(backend.health(), model) for backend, model in self._named(name)), math.inf)

    def is_balanced_by_prefix(self, request: Request, client: ClientFacts) -> bool:
        """Returns whether a rule treats the backends of this request as replicas of one model."""
        decision = None if self._rules is None else self._rules.decide(request, client, self._load)
        return decision is not None and decision.rule.balance == "prefix"

    def with_steps(self, request: Request, client: ClientFacts) -> Request:
        """Returns the request with the steps of its rule, unless it has its own, or switches them off."""
        if request.steps is not None and request.steps.is_off:
            return msgspec.structs.replace(request, steps=None)
        if self._rules is None or not self._rules.have_steps or request.steps is not None:
            return request
        decision = self._rules.decide(request, client, self._load)
        steps = None if decision is None else decision.rule.steps
        return request if steps is None else msgspec.structs.replace(request, steps=steps)

    def vision_routes(self, request: Request, client: ClientFacts) -> list[ModelRoute]:
        """Returns the backends that describe the images of this request for its model; empty: images stay."""
        decision = None if self._rules is None else self._rules.decide(request, client, self._load)
        if decision is None or not (model := decision.rule.config.describe_images) or not has_images(request):
            return []
        permissions = client.permissions
        return [
            ModelRoute(backend, msgspec.structs.replace(request, model=id))
            for backend, id in self._named(model)
            if permissions is None or permissions.admits_upstream(backend_name(backend))
        ]

    def second_opinion(self, request: Request, client: ClientFacts, default: str) -> str:
        """Returns the model that is re-asked about the response to this request; empty: the one that wrote it.

        Args:
            request: The request of the client.
            client: Who sent it.
            default: The model of the settings, where the route names none.
        """
        decision = None if self._rules is None else self._rules.decide(request, client, self._load)
        return (decision.rule.config.second_opinion if decision is not None else "") or default

    def permitted_routes(self, name: str, request: Request, client: ClientFacts) -> list[ModelRoute]:
        """Returns the backends that serve a model of the settings; empty: none does, or the API key may not use it.

        Args:
            name: The model or alias.
            request: The request for it.
            client: Who is to get the response.
        """
        permissions = client.permissions
        return [
            ModelRoute(backend, msgspec.structs.replace(request, model=id))
            for backend, id in self._named(name)
            if permissions is None
            or (permissions.admits_model(name, id) and permissions.admits_upstream(backend_name(backend)))
        ]

    async def routes_or_refresh(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[ModelRoute]:
        """As `routes`, but the backends refresh their models first if none offers the model."""
        try:
            return self.routes(request, client)
        except (UnknownModelError, BackendUnavailableError):
            await asyncio.gather(*(backend.refresh_models() for backend in self._backends))
            return self.routes(request, client)

    def routes_now(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[ModelRoute]:
        """As `routes`, but empty if there are none now, which the client is told later."""
        try:
            return self.routes(request, client)
        except (UnknownModelError, BackendUnavailableError):
            return []

    def _models_by_name(self) -> dict[str, ServedModel]:
        names: dict[str, ServedModel] = {}
        own = [model for backend in self._backends for model in backend.models()]
        for model in own:
            names.setdefault(model.id, model)
        for model in own:
            for alias in model.aliases:
                names.setdefault(alias, _as_alias(model, alias))
        return names

    def _listed_by(self, model: str) -> list[tuple[Backend, str]]:
        """The backends that list this name, each with its own name of the model; own names precede aliases."""
        for number, backend in enumerate(self._backends):
            if backend.models() is not self._indexed[number]:
                lists = [backend.models() for backend in self._backends]
                self._indexed, self._index = list(lists), _index(self._backends, lists)
                break
        return self._index.get(model, [])

    def _providers_of(self, model: str) -> list[tuple[Backend, str]]:
        return self._listed_by(model) or self._resolved_by(model)

    def _resolved_by(self, model: str) -> list[tuple[Backend, str]]:
        """The backends that accept a name that none lists, each with its own name of the model."""
        return [(each, name) for each in self._backends if (name := each.resolve_model_name(model)) is not None]


def _index(backends: Sequence[Backend], lists: Sequence[Sequence[ServedModel]]) -> dict[str, list[tuple[Backend, str]]]:
    own: dict[str, list[tuple[Backend, str]]] = {}
    aliased: dict[str, list[tuple[Backend, str]]] = {}
    for backend, models in zip(backends, lists, strict=True):
        for model in models:
            own.setdefault(model.id, []).append((backend, model.id))
            for alias in model.aliases:
                aliased.setdefault(alias, []).append((backend, model.id))
    return {name: list(dict.fromkeys(served)) for name, served in (aliased | own).items()}


def _requested_names(request: Request) -> tuple[str, ...]:
    """Returns the name that the client wrote, and the one that it stands for in the client's API."""
    own = dialects.get(request.dialect).resolve_display_name(request.model) if request.dialect else request.model
    return request.model, own


def backend_name(backend: Backend) -> str:
    """Returns the name of the backend in logs and warnings."""
    return backend.name or str(backend.health().get("backend", ""))


def requests_of(health: Mapping[str, object], model: str) -> float:
    """Returns the number of active and waiting requests of a backend; infinite if the model has reached a limit.

    Args:
        health: The health of the backend.
        model: Its own name of the model.
    """
    limited = health.get("limited_s")
    if isinstance(limited, Mapping) and model in limited:
        return math.inf
    return sum(count for field in ("active", "waiting") if isinstance(count := health.get(field), int))


def _as_alias(model: ServedModel, alias: str) -> ServedModel:
    return dataclasses.replace(model, id=alias, display_name="")


def alias_targets(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the models that an alias stands for."""
    return (targets,) if isinstance(targets, str) else tuple(targets)


def unknown_alias_target(alias: str, target: str, known: Iterable[str]) -> ConfigError:
    """Returns the error about an alias of a model that no backend serves."""
    return unknown_target(target, known, f"model_aliases.{alias}")


def unknown_target(name: str, known: Iterable[str], place: str) -> ConfigError:
    """Returns the error about a setting that names a model that no backend serves.

    Args:
        name: The model.
        known: The models that are served.
        place: The key of the setting.
    """
    return ConfigError(f"no backend serves {quote(name)}{one_of(name, sorted(known), 'served: ')} - at {place}")


def rerouted(route: ModelRoute, request: Request) -> ModelRoute:
    """Returns the route to the same backend and model with another request."""
    model = route.request.model
    return ModelRoute(
        route.backend, request if model == request.model else msgspec.structs.replace(request, model=model)
    )


def failover_notice(routes: Sequence[ModelRoute], error: DragomanError) -> Notice:
    """Returns the warning that the second of these routes is used because the first failed with this error.

    Raises:
        DragomanError: The error, if there is no second route, or none that could answer.
    """
    if len(routes) < 2 or not isinstance(error, RemoteError) or _is_request_error(error):
        raise error
    (failed, _), (backend, routed) = routes[:2]
    message = f"{backend_name(failed)} could not answer ({loggable_message(error)})"
    log.warning("%s; %s is asked for %s", message, backend_name(backend), quote(routed.model))
    path = f"{backend_name(failed)} > {backend_name(backend)}"
    return Notice("failed_over", f"{message}; {backend_name(backend)} was asked", detail=path)


def with_last_resort(routes: list[ModelRoute], error: DragomanError, attempts: Attempts) -> list[ModelRoute]:
    """Returns the routes, the first of which failed; servers that were not asked come last, and are asked then.

    A single server is not asked while it gets no requests: the client gets the error at once.

    Args:
        routes: The routes that are left.
        error: The error of the first one.
        attempts: What was asked so far.
    """
    if isinstance(error, NotAskedError) and not attempts.insists and len(attempts.failed) + len(routes) > 2:
        routes = [*routes, routes[0]]
        attempts.not_asked += 1
    attempts.insists = 0 < len(routes) - 1 <= attempts.not_asked
    return routes


def _is_request_error(error: RemoteError) -> bool:
    """Whether the error is about the request, so that another server would refuse it too or should not get it."""
    return isinstance(error, UpstreamError) and error.status in (400, 405, 413, 414, 415, 422)
