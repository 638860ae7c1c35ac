"""Paths of one exchange: its view, also while it runs."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.console.exchange.exchange_view import exchange_view
from dragoman.console.exchange.live_view import live_views
from dragoman.console.responses import event_stream, json_response
from dragoman.console.services import ConsoleServices


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    return [
        Route("/exchanges/{id}", partial(_view, services)),
        Route("/exchanges/{id}/stream", partial(_stream, services)),
    ]


async def _view(services: ConsoleServices, request: Request) -> Response:
    """Answers with the lanes of an exchange."""
    return json_response(await exchange_view(services, request.path_params["id"]))


async def _stream(services: ConsoleServices, request: Request) -> Response:
    """Answers with the parts of the view that change, until the exchange ends."""
    id = request.path_params["id"]
    ended = None if services.captures.is_running(id) else await exchange_view(services, id)
    return event_stream(services, live_views(services, id, ended))
