"""Paths of the playground's tools; its chat uses the APIs of the gateway."""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.console.playground.tools import PlaygroundRunner
from dragoman.console.playground.views import PlaygroundRun
from dragoman.console.responses import json_response, read_json
from dragoman.console.security import KEY
from dragoman.console.services import ConsoleServices
from dragoman.gateway.vendor_tools.loop import VendorToolRunner

MAX_BODY_BYTES: Final = 1024 * 1024


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    runner = PlaygroundRunner()
    return [
        Route("/playground/tools", partial(_list, services, runner)),
        Route("/playground/tools/run", partial(_run, services, runner), methods=["POST"]),
    ]


async def _list(services: ConsoleServices, runner: PlaygroundRunner, request: Request) -> Response:
    """Answers with all tools."""
    return json_response(await runner.tools(_tools(services, request), services.config.mcp))


async def _run(services: ConsoleServices, runner: PlaygroundRunner, request: Request) -> Response:
    """Runs one call, and answers with its result."""
    call = await read_json(request, PlaygroundRun, MAX_BODY_BYTES)
    return json_response(await runner.run(_tools(services, request), call))


def _tools(services: ConsoleServices, request: Request) -> VendorToolRunner:
    """Returns what runs the tools that the key of the session may use."""
    key, tools = request.scope.get(KEY), services.app.snapshot.gateway.vendor_tools
    return tools if key is None else tools.for_client(key.client)
