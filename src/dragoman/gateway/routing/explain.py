"""Explains which route applies to a request: each condition with what was expected and what the request is."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dragoman.core.client import ClientFacts
from dragoman.core.errors import RequestError
from dragoman.core.messages import Request
from dragoman.gateway.routing.route import RouteRule, Routes
from dragoman.steps.apply import apply_steps


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
    steps: str | Mapping[str, object] = ""
    """The steps of its requests, as in the settings; empty: none."""
    allowed_now: str = ""
    """What the steps of the request allow now, if the route applies."""


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
        explained.append(_explained(rule, conditions, request))
        if explained[-1].applies:
            break
    return explained


def _explained(rule: RouteRule, conditions: Sequence[ExplainedCondition], request: Request) -> ExplainedRoute:
    applies = all(each.holds for each in conditions)
    use, steps, other = tuple(rule.config.weights()), rule.config.steps, rule.config.second_opinion
    now = _allowed_now(rule, request) if applies and steps else ""
    return ExplainedRoute(rule.name, applies, conditions, use, rule.balance, other, steps, now)


def _allowed_now(rule: RouteRule, request: Request) -> str:
    if request.steps is not None and request.steps.is_off:
        return "the request switches steps off"
    try:
        notices = apply_steps(request if request.steps else replace(request, steps=rule.steps)).notices
    except RequestError as error:
        return error.message
    return "; ".join(notice.message for notice in notices) or "the steps do not apply: the request offers no tools"
