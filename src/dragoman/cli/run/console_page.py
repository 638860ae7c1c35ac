"""Shows the address of the console of an agent's own gateway, before the agent takes the terminal."""

import asyncio
import sys

from dragoman.cli._common import print_status
from dragoman.server.paths import CONSOLE


async def show_console_page(url: str, key: str, title: str) -> None:
    """Prints where the console is, and waits for Enter at a terminal: agents clear what was printed before.

    Args:
        url: The gateway.
        key: Its API key.
        title: The agent, for people.
    """
    print_status(f"console: {url}{CONSOLE}, sign in with the key {key}")
    if sys.platform != "win32" and sys.stdin.isatty() and sys.stderr.isatty():
        print_status(f"open it in a browser, then press Enter to start {title}")
        await _enter()


async def _enter() -> None:
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, pressed.set)
    try:
        await pressed.wait()  # Ctrl-C cancels it
    finally:
        loop.remove_reader(sys.stdin)
    sys.stdin.readline()
