"""Explains which route applies to a request: each condition with what was expected and what the request is."""

from collections.abc import Sequence

import msgspec

from dragoman.core.client import ClientFacts
from dragoman.core.messages import Request
from dragoman.gateway.routing.route import RouteRule, Routes


class ExplainedCondition(msgspec.Struct, frozen=True):
    """A condition of a route, and what the request is."""

    condition: str
    expected: str
    got: str
    holds: bool


class ExplainedRoute(msgspec.Struct, frozen=True):
    """A route, and whether it applies."""

    route: str
    applies: bool
    conditions: Sequence[ExplainedCondition]
    use: Sequence[str]
    balance: str
    second_opinion: str
    """The model that is re-asked; empty: the route names none."""


def explain(routes: Routes, request: Request, client: ClientFacts) -> list[ExplainedRoute]:
    """Returns the routes up to the first that applies.

    Args:
        routes: The routes of the settings.
        request: The request.
        client: Who sends it.
    """
    call = routes.routed_request(request, client)
    explained: list[ExplainedRoute] = []
    for rule in routes.rules:
        conditions = [
            ExplainedCondition(each.name, each.expected, each.got(call), each.holds(call)) for each in rule.conditions
        ]
        explained.append(_explained(rule, conditions))
        if explained[-1].applies:
            break
    return explained


def _explained(rule: RouteRule, conditions: Sequence[ExplainedCondition]) -> ExplainedRoute:
    applies = all(each.holds for each in conditions)
    config = rule.config
    return ExplainedRoute(rule.name, applies, conditions, tuple(config.weights()), rule.balance, config.second_opinion)
