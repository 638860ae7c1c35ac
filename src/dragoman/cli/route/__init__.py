"""`dragoman route explain`: which rule applies to a request, why, and which models are tried."""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dragoman import compose, dialects
from dragoman import config as settings
from dragoman.cli._common import add_config_flag, print_status, require_extras
from dragoman.cli._terminal import one_line
from dragoman.core.client import ClientFacts
from dragoman.core.errors import ClientError, ConfigError, DragomanError, RequestError, quote
from dragoman.core.messages import Request
from dragoman.gateway.routing.explain import ExplainedRoute, explain
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.routing.router import backend_name
from dragoman.identify.client import identify_client

_EXAMPLES: Final = """
    examples:
      dragoman route explain request.json
      dragoman route explain request.json --header 'x-session-id: 1'
      dragoman route explain CAPTURE/request.json --json

    exit status:
      0  success
      1  no backend serves the model now
      2  the file cannot be read, is not a request, or a setting is wrong
"""


class _Target(msgspec.Struct, frozen=True):
    """A backend that is tried."""

    upstream: str
    model: str


class _Explanation(msgspec.Struct, frozen=True):
    """All that is printed."""

    client: Mapping[str, str]
    """The name of each fact about the client that is known, with its value."""
    requested: str
    routes: Sequence[ExplainedRoute]
    targets: Sequence[_Target] = ()
    error: str = ""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command and its own command."""
    command = commands.add_parser(
        "route",
        help="explain which model a request is sent to",
        description="Explain which of the rules [[routes]] applies to a request.",
        epilog=_EXAMPLES,
    )
    more = command.add_subparsers(
        title="commands", dest="route_command", metavar="COMMAND", help="one of these", required=True
    )
    explained = more.add_parser(
        "explain",
        help="show each rule with its conditions, and the models that are tried",
        description="Show each rule up to the first that applies, with its conditions and what the request is, and the "
        "backends in the order in which they are tried. Backends are asked for their models; the request is not sent.",
        epilog=_EXAMPLES,
    )
    explained.add_argument("file", type=Path, metavar="FILE", help="file with the request body; -: standard input")
    explained.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="header of the request, such as 'user-agent: claude-cli/2.1'; several are possible",
    )
    explained.add_argument("--key", default="", metavar="NAME", help="name of the client's API key")
    explained.add_argument(
        "--api",
        choices=dialects.names(),
        metavar="API",
        help="API of the request: %(choices)s (default: the first of these that accepts the request)",
    )
    explained.add_argument("--json", action="store_true", help="print the explanation as JSON")
    add_config_flag(explained)
    explained.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the explanation.

    Raises: ConfigError: the file cannot be read, or a setting is wrong. ClientError: it is not a request.
    """
    path = compose.settings_path(args.config)
    config, origin = settings.load(path, os.environ, {})
    request = _read(_body(args.file), args.api)
    client = identify_client(_headers(args.header), request, ClientFacts(key=args.key), exchange="explained")
    names = {"agent": client.agent, "role": client.role, "session": client.session, "key": client.key}
    known = {name: value for name, value in names.items() if value}
    found = _Explanation(known, request.model, explain(Routes(config.routes), request, client))
    embedded = compose.serves_embedded(config, origin)
    found = asyncio.run(_with_targets(found, config, request, client, embedded=embedded))
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print("\n".join(_lines(found)))
    return 1 if found.error else 0


async def _with_targets(
    found: _Explanation, config: settings.Config, request: Request, client: ClientFacts, *, embedded: bool
) -> _Explanation:
    """Returns the explanation with the backends that are tried.

    Args:
        found: The explanation.
        config: The settings.
        request: The request.
        client: Who sends it.
        embedded: Whether the embedded model is served.

    Raises:
        ConfigError: A setting is wrong.
    """
    require_extras("server", *(["embedded"] if embedded else []), doing="explaining routes")
    gateway = compose.build_gateway(config, embedded, print_status)
    try:
        await gateway.start()
        routes = await gateway.routes_or_refresh(request, client)
        if gateway.placer is not None and found.routes[-1].applies and found.routes[-1].balance == "prefix":
            routes = gateway.placer.preview(request, routes)
    except ConfigError:
        raise
    except DragomanError as error:
        return msgspec.structs.replace(found, error=error.message)
    finally:
        await gateway.close()
    targets = [_Target(backend_name(backend), routed.model) for backend, routed in routes]
    return msgspec.structs.replace(found, targets=targets)


def _lines(found: _Explanation) -> Iterator[str]:
    known = ", ".join(f"{name} {one_line(value)}" for name, value in found.client.items())
    yield f"client: {known or 'unknown'}"
    yield f"requested model: {one_line(found.requested)}"
    for route in found.routes:
        yield f"route {one_line(route.route)} {'applies' if route.applies else 'does not apply'}"
        for each in route.conditions:
            mark = "✓" if each.holds else "✗"
            yield f"  {mark} {each.condition}: expected {one_line(each.expected)}, got {one_line(each.got)}"
        if route.applies and (route.use or route.balance == "prefix"):
            yield f"  uses {', '.join(map(one_line, route.use)) or 'the requested model'} ({route.balance})"
            if route.balance == "prefix":
                yield "  the order of a new conversation while no upstream is busy:"
        if route.applies and route.second_opinion:
            yield f"  re-asks {one_line(route.second_opinion)} about a response that is not valid"
        if route.steps:
            yield f"  steps: {one_line(msgspec.json.encode(route.steps).decode())}"
        if route.allowed_now:
            yield f"  {one_line(route.allowed_now)}"
    if not found.routes:
        yield "there are no routes in the settings"
    elif not found.routes[-1].applies:
        yield "no route applies: the requested model is used"
    for number, target in enumerate(found.targets, 1):
        yield f"{number}. {one_line(target.model)} at {one_line(target.upstream)}"
    if found.error:
        yield f"error: {one_line(found.error)}"


def _headers(lines: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigError(
                f"expected a header such as 'user-agent: claude-cli/2.1', got {quote(line)} - at --header"
            )
        headers[name.strip().lower()] = value.strip()
    return headers


def _body(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None


def _read(body: bytes, api: str | None) -> Request:
    problems: list[str] = []
    for name in [api] if api else dialects.names():
        try:
            return dialects.get(name).read_request(body)
        except ClientError as e:
            problems.append(f"{name}: {e}")
    raise RequestError("expected a request of one of the APIs, got none - " + "; ".join(problems))
