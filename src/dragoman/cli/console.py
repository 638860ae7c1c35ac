"""`dragoman console`: opens the console of a running gateway in the browser."""

import argparse
import asyncio
import os
import sys
from typing import Final

from dragoman.cli._common import add_config_flag, add_gateway_flag, print_status, require_extras
from dragoman.core.errors import BackendUnavailableError, ConfigError

_EXAMPLES: Final = """
    examples:
      dragoman console
      dragoman console --gateway http://10.0.0.5:8484

    exit status:
      0  the address was printed
      1  no gateway runs, or it failed
      2  the gateway has no console, or an extra is missing
"""
_FOUND: Final = (200, 303)
"""Statuses of the page: the page itself, or the way to its sign-in."""
_ABSENT: Final = 404
_SIGN_IN: Final = 303


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "console",
        help="open the console of a running gateway in the browser",
        description="Print the address of the console of a running gateway, and open it in the browser. Without a "
        "terminal, or without a graphical browser on this machine, it is only printed.\n\n"
        "The console shows the exchanges of the gateway as they run, why a tool call was or was not made, reports and "
        "settings.",
        epilog=_EXAMPLES,
    )
    add_gateway_flag(command)
    add_config_flag(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the address, and opens it.

    Raises:
        DragomanError: no gateway responds, or it has no console.
    """
    require_extras("server", doing="asking a gateway")
    from dragoman.cli.models.loaded import gateway_address, load_settings
    from dragoman.server.paths import CONSOLE

    url = gateway_address(args, load_settings(args)).url
    needs_key = asyncio.run(_check(url, CONSOLE))
    page = f"{url}{CONSOLE}"
    print(page, flush=True)
    if needs_key:
        print_status("sign in with an API key that has admin = true; `dragoman keys create NAME --admin` creates one")
    if sys.stdout.isatty() and has_graphical_browser():
        import webbrowser

        if not webbrowser.open(page):
            print_status("no browser could be started; open the address yourself")
    return 0


async def _check(url: str, path: str) -> bool:
    """Returns whether the console needs an API key.

    Args:
        url: the gateway.
        path: the path of the console.

    Raises:
        BackendUnavailableError: no gateway responds, or its page is not built.
        ConfigError: it has no console.
    """
    from dragoman.cli._console import error_message, no_console
    from dragoman.cli.doctor.gateway_client import open_gateway

    try:
        async with open_gateway(url, "") as gateway:  # the page itself contains no data, so no key is sent
            status, body = await gateway.request("GET", path)
    except BackendUnavailableError as error:
        raise BackendUnavailableError(f"{error.message}; start one: dragoman serve") from error
    if status == _ABSENT:
        raise ConfigError(no_console(url))
    if status not in _FOUND:
        raise BackendUnavailableError(f"the console of {url} cannot be opened: {error_message(status, body)}")
    return status == _SIGN_IN


def has_graphical_browser() -> bool:
    """Whether a browser with a window can be started here: one in the terminal cannot show the page."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"))
