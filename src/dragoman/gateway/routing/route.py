"""Routes: rules that select the models of a request by what is asked, and by whom.

    routes = Routes(config.routes)                       compiled once
    decision = routes.decide(request, client, load)      the first route whose conditions hold, and its models in order

A decision is remembered for its exchange, as a request is routed more than once until it is sent.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Final, NamedTuple, TypeAlias

from dragoman.core.client import ANONYMOUS, ClientFacts
from dragoman.core.errors import ConfigError, RequestError, one_of, quote
from dragoman.core.messages import Request, Steps
from dragoman.gateway.routing import balance
from dragoman.gateway.routing.condition import Condition, RoutedRequest, conditions_of
from dragoman.gateway.routing.config import BALANCES, RouteConfig
from dragoman.steps.read import read_setting

_REMEMBERED: Final = 1024
"""Number of exchanges whose decision is remembered."""

Load: TypeAlias = Callable[[str], float]
"""Returns the number of active requests of the upstream that serves the model of this name."""


class RouteRule(NamedTuple):
    """A compiled route."""

    name: str
    conditions: tuple[Condition, ...]
    config: RouteConfig
    balance: str
    where: str
    """The key of its table."""
    steps: Steps | None = None
    """Steps of its requests; None: it has none."""

    def matches(self, call: RoutedRequest) -> bool:
        """Returns whether all conditions hold."""
        return all(condition.holds(call) for condition in self.conditions)


class RouteDecision(NamedTuple):
    """The route of a request."""

    rule: RouteRule
    models: tuple[str, ...]
    """Models or aliases, in the order in which they are tried; empty: the one that the client requests."""


class Routes:
    """The routes of the settings, in their order."""

    def __init__(
        self,
        configs: Sequence[RouteConfig],
        now: Callable[[tzinfo | None], datetime] = datetime.now,
        random: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            configs: The settings of each route.
            now: Returns the time in a zone; None: in that of the machine.
            random: Returns a random number from 0 up to, but not including, 1.

        Raises:
            ConfigError: A setting is not valid.
        """
        self._now, self._random = now, random
        self.rules = tuple(_compile(config, number) for number, config in enumerate(configs, 1))
        self.describe_images = any(rule.config.describe_images for rule in self.rules)
        """Whether a route replaces images by descriptions."""
        self.names_second_opinion = any(rule.config.second_opinion for rule in self.rules)
        """Whether a route names a model that is re-asked."""
        self.balances_by_prefix = any(rule.balance == "prefix" for rule in self.rules)
        """Whether a route treats upstreams as replicas of one model."""
        self.have_steps = any(rule.steps is not None for rule in self.rules)
        """Whether a route has steps."""
        self._decided: OrderedDict[str, RouteDecision | None] = OrderedDict()

    def decide(
        self, request: Request, client: ClientFacts = ANONYMOUS, load: Load = lambda name: 0
    ) -> RouteDecision | None:
        """Returns the first route whose conditions hold, with its models in order; None: there is none.

        Args:
            request: The request of the client.
            client: Who sent it.
            load: See `Load`.
        """
        if not request.messages:  # embeddings and other APIs, or the model alone
            return None
        if not client.exchange:
            return self._decide(request, client, load)
        if client.exchange not in self._decided:
            self._decided[client.exchange] = self._decide(request, client, load)
            if len(self._decided) > _REMEMBERED:
                self._decided.popitem(last=False)
        return self._decided[client.exchange]

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yields each model or alias that a route names, with the key of its setting."""
        for rule in self.rules:
            yield from ((name, f"{rule.where}.use") for name in rule.config.weights())
            if rule.config.describe_images:
                yield rule.config.describe_images, f"{rule.where}.describe_images"
            if rule.config.second_opinion:
                yield rule.config.second_opinion, f"{rule.where}.second_opinion"

    def routed_request(self, request: Request, client: ClientFacts) -> RoutedRequest:
        """Returns the request as the conditions see it."""
        return RoutedRequest(request, client, self._now)

    def _decide(self, request: Request, client: ClientFacts, load: Load) -> RouteDecision | None:
        call = self.routed_request(request, client)
        for rule in self.rules:
            if rule.matches(call):
                return RouteDecision(rule, tuple(self._ordered(rule, request, client, load)))
        return None

    def _ordered(self, rule: RouteRule, request: Request, client: ClientFacts, load: Load) -> Sequence[str]:
        weights = rule.config.weights()
        if len(weights) < 2:
            return tuple(weights)
        match rule.balance:
            case "weighted":
                return balance.weighted(weights, self._random)
            case "least_busy":
                return balance.least_busy(weights, load)
            case "sticky":
                return balance.sticky(weights, client.session or balance.conversation_of(request))
            case _:
                return tuple(weights)


def _compile(config: RouteConfig, number: int) -> RouteRule:
    where = f"routes[{number}]"
    name = config.name or str(number)
    if config.balance and config.balance not in BALANCES:
        hint = one_of(config.balance, BALANCES, "expected ")
        raise ConfigError(f"unknown {quote(config.balance)}{hint} - at {where}.balance")
    weights = config.weights()
    other = config.second_opinion
    if not (weights or config.describe_images or other or config.steps) and config.balance != "prefix":
        raise ConfigError(f"expected a model, a list of models, or a table of weights, got none - at {where}.use")
    if wrong := next((model for model, weight in weights.items() if not 0 < weight < float("inf")), None):
        raise ConfigError(f"expected a weight above 0, got {weights[wrong]:g} for {quote(wrong)} - at {where}.use")
    if config.balance == "prefix" and isinstance(config.use, dict):
        raise ConfigError(
            "expected a list, since the load decides how many requests a replica gets, got a table of weights"
            f" - at {where}.use"
        )
    if config.max_tokens and config.max_tokens < config.min_tokens:
        raise ConfigError(
            f"expected at least min_tokens, {config.min_tokens}, got {config.max_tokens} - at {where}.max_tokens"
        )
    if other and set(weights) == {other}:
        raise ConfigError(f"expected another model than that of `use`, got {quote(other)} - at {where}.second_opinion")
    used = config.balance or ("weighted" if isinstance(config.use, dict) else "order")
    try:
        steps = read_setting(config.steps, f"{where}.steps") if config.steps else None
    except RequestError as error:
        raise ConfigError(error.message) from None
    return RouteRule(name, conditions_of(config, where), config, used, where, steps)
