"""The settings about second opinions, applied to each response."""

from dragoman.core.client import ClientFacts
from dragoman.core.messages import Request
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.routing.router import ModelRoute, Router, backend_name
from dragoman.gateway.second_opinion.costs import CostSum
from dragoman.gateway.second_opinion.opinion import SecondOpinion
from dragoman.guard.policy import GuardPolicy
from dragoman.prices.price_book import PriceBook


class SecondOpinions:
    """Gives each response what answers its re-asks."""

    def __init__(self, policy: GuardPolicy, router: Router, prices: PriceBook | None) -> None:
        """
        Args:
            policy: Settings of the guard.
            router: Finds models.
            prices: Prices of models; None: no price is known.
        """
        self._policy, self._router, self._prices = policy, router, prices

    def begin(self, request: Request, client: ClientFacts, route: ModelRoute) -> SecondOpinion | None:
        """Returns what answers the re-asks of a response; None: the same model does, once.

        Args:
            request: The request of the client.
            client: Who sent it.
            route: The route of the response.
        """
        name = self._router.second_opinion(request, client, self._policy.second_opinion)
        if not name and self._policy.samples < 2:
            return None
        costs = CostSum(self._prices, backend_name(route.backend), route.request.model)
        return SecondOpinion(self._router, name, self._policy.samples, route, costs)

    def routes(self, request: Request, client: ClientFacts) -> list[ModelRoute]:
        """Returns the backends of the other model that may be re-asked about this request.

        Args:
            request: The request of the client.
            client: Who sent it.
        """
        name = self._router.second_opinion(request, client, self._policy.second_opinion)
        return self._router.permitted_routes(name, request, client) if name and _may_reask(request) else []

    def samples(self, request: Request) -> int:
        """Returns how many samples there may be of a second response to this request."""
        return self._policy.samples if _may_reask(request) else 1


def _may_reask(request: Request) -> bool:
    return bool(request.tools or request.response_schema)


def opinions_of(
    policy: GuardPolicy, rules: Routes | None, router: Router, prices: PriceBook | None
) -> SecondOpinions | None:
    """Returns the second opinions of the settings; None: there are none.

    Args:
        policy: Settings of the guard.
        rules: Rules that select models; None: there are none.
        router: Finds models.
        prices: Prices of models; None: no price is known.
    """
    named = policy.second_opinion or policy.samples > 1 or (rules is not None and rules.names_second_opinion)
    return SecondOpinions(policy, router, prices) if policy.reask and named else None
