"""The command `models examples`: how many examples a gateway has learned for a key, and their deletion."""

import argparse
import asyncio
import json

import msgspec

from dragoman.cli._common import require_extras
from dragoman.cli._terminal import printable
from dragoman.cli.models.loaded import GatewayAddress, gateway_address, load_settings
from dragoman.core.errors import ConfigError

_OK = 200


class ExampleCounts(msgspec.Struct):
    """The response of the gateway."""

    tools: int
    examples: int
    chars: int


def run(args: argparse.Namespace) -> int:
    """Prints the numbers of the key's examples, and deletes them with `--delete`.

    Raises:
        DragomanError: No gateway responds, it needs a key, or its examples are off.
    """
    require_extras("server", doing="asking a gateway")
    counts = asyncio.run(request_examples(gateway_address(args, load_settings(args)), delete=args.delete))
    if args.json:
        print(json.dumps({**msgspec.to_builtins(counts), "deleted": args.delete}))
    else:
        done = "deleted: " if args.delete else ""
        print(printable(f"{done}{counts.examples} examples of {counts.tools} tools, {counts.chars} characters"))
    return 0


async def request_examples(address: GatewayAddress, *, delete: bool) -> ExampleCounts:
    """Returns the numbers of the examples of this key.

    Args:
        address: The gateway.
        delete: Whether they are deleted.

    Raises:
        BackendUnavailableError: No gateway responds.
        ConfigError: Examples are off, or the key is refused.
    """
    from dragoman.cli.doctor.gateway_client import open_gateway

    async with open_gateway(*address) as gateway:
        status, body = await gateway.request("DELETE" if delete else "GET", "/v1/examples")
    try:
        if status == _OK:
            return msgspec.json.decode(body, type=ExampleCounts)
        message = str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = f"expected the numbers of examples, got a response with status {status}"
    raise ConfigError(f"{message} - from the gateway at {address.url}")
