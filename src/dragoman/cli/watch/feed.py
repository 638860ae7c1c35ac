"""The exchanges of a running gateway, as they begin, change and end; the connection is made again when it is lost."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec

from dragoman.cli._console import API, CHANGE, fetch, fetch_state, read_answer
from dragoman.cli.doctor.gateway_client import GatewayClient, open_gateway
from dragoman.cli.models.loaded import GatewayAddress
from dragoman.console.api import CaptureState, ConsoleState, TrafficPage, TrafficRow
from dragoman.core.errors import BackendUnavailableError, DragomanError

HISTORY: Final = 500
"""Number of earlier exchanges that are listed."""
_IDLE_TIMEOUT_S: Final = 30.0
"""Time without a ping after which the connection is lost."""
_FIRST_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 5.0
"""Bounds of the time between two attempts to connect."""


class FeedUpdate(NamedTuple):
    """What has changed."""

    rows: Sequence[TrafficRow] = ()
    """Rows to insert, or to replace by their id."""
    state: ConsoleState | None = None
    """After each connection: the state of the console. Rows that still run are among `rows`, older ones are over."""
    problem: str = ""
    """Why there is no connection; "": there is one."""


class TrafficFeed:
    """Follows the exchanges of one gateway."""

    def __init__(self, address: GatewayAddress, history: int = HISTORY) -> None:
        """Args:
        address: the gateway.
        history: number of earlier exchanges that the first update contains.
        """
        self.address, self._history = address, history

    async def check(self) -> ConsoleState:
        """Returns the state of the console.

        Raises:
            BackendUnavailableError: no gateway responds.
            ConfigError: it has no console, or needs another key.
        """
        try:
            async with open_gateway(*self.address) as gateway:
                return await fetch_state(gateway)
        except BackendUnavailableError as error:
            raise BackendUnavailableError(f"{error.message}; start one: dragoman serve") from error

    async def updates(self) -> AsyncGenerator[FeedUpdate, None]:
        """Yields what changes, without an end; a lost connection is an update with a `problem`."""
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                async with open_gateway(*self.address) as gateway, aclosing(self._connected(gateway)) as updates:
                    async for update in updates:
                        delay_s = _FIRST_DELAY_S
                        yield update
                problem = f"the gateway at {self.address.url} ended the connection"
            except DragomanError as error:
                problem = error.message
            yield FeedUpdate(problem=problem)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _MAX_DELAY_S)

    async def _connected(self, gateway: GatewayClient) -> AsyncGenerator[FeedUpdate, None]:
        """Yields what the stream has; earlier exchanges are read after its begin, so that none is missed in between."""
        state: ConsoleState | None = await fetch_state(gateway)
        async with aclosing(gateway.events(f"{API}/traffic/stream", _IDLE_TIMEOUT_S)) as events:
            async for event in events:
                if event.event != "rows":
                    continue
                rows = _rows(event.data)
                if state is not None:
                    page = await fetch(gateway, f"/traffic?limit={self._history}", TrafficPage)
                    rows = [*page.rows[::-1], *rows]
                yield FeedUpdate(rows, state)
                state = None

    async def switch_capture(self, is_on: bool) -> CaptureState:
        """Begins or ends to capture exchanges in memory.

        Args:
            is_on: whether they are captured.

        Raises:
            DragomanError: the gateway does not respond, or refuses.
        """
        async with open_gateway(*self.address) as gateway:
            path = "/capture"
            answer = await gateway.request("PUT", f"{API}{path}", {"on": is_on}, more=CHANGE)
            return read_answer(gateway, path, *answer, CaptureState)


def _rows(data: bytes) -> list[TrafficRow]:
    """Returns the rows of an event.

    Raises:
        BackendUnavailableError: another version of the gateway has other rows.
    """
    try:
        return msgspec.json.decode(data, type=list[TrafficRow])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackendUnavailableError(f"expected rows of exchanges, got others: {error}") from None
