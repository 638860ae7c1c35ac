"""The successful response to one request: its headers, and its body as it arrives.

    response = await connection.open(path, body, headers)
    try:
        while piece := await response.read():
            ...
    finally:
        await response.close()      # read to its end: the connection is kept; otherwise it is closed, as is the model

It holds the request's concurrency slot, and reports its outcome to the circuit breaker.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.backends.http.circuit_breaker import GuardedRequest
from dragoman.backends.http.client.errors import HttpError
from dragoman.backends.http.client.http_client import Response
from dragoman.core.errors import RemoteError

_DRAIN_TIMEOUT_S: Final = 0.25
"""How long to wait for the end of the HTTP body after the last event; a new connection over the network takes about as
long.
"""
_ABANDONED: Final = asyncio.CancelledError()
"""The outcome of a response that was not read to its end."""


class ResponseBody(Protocol):
    """A response as backends read it."""

    headers: Mapping[str, str]
    """Names in lower case; known once `read` has returned."""

    async def read(self) -> bytes:
        """Returns the next bytes, all that have arrived; b"" at the end.

        Raises:
            RemoteError: the server failed.
        """

    async def close(self) -> None:
        """Closes the connection, unless the response was read to its end."""


class UpstreamResponse:
    """A response that is read from its connection."""

    __slots__ = (
        "_connection_error",
        "_guarded",
        "_has_started",
        "_idle_timeout_s",
        "_limiter",
        "_outcome",
        *("_response", "_slot", "headers"),
    )

    def __init__(
        self,
        response: Response,
        guarded: GuardedRequest | None,
        limiter: ConcurrencyLimiter,
        slot: tuple[float, Callable[[], None]],
        connection_error: Callable[[Exception, bool], RemoteError],
        idle_timeout_s: float,
    ) -> None:
        """
        Args:
            response: the response, whose head has arrived.
            guarded: counts the outcome for the circuit breaker; None: the outcome does not count.
            limiter: gets the slot back.
            slot: what its `begin` returned.
            connection_error: returns the error for a transport failure, and gets whether bytes had arrived before.
            idle_timeout_s: limit of each wait after the first bytes.
        """
        self._response, self._guarded, self._limiter, self._slot = response, guarded, limiter, slot
        self._connection_error, self._idle_timeout_s = connection_error, idle_timeout_s
        self._has_started = False
        self._outcome: BaseException | None = _ABANDONED
        self.headers = response.headers

    async def read(self) -> bytes:
        """Returns the next bytes; see `ResponseBody`."""
        try:
            piece = await self._response.read()
        except HttpError as e:
            self._outcome = error = self._connection_error(e, self._has_started)
            raise error from None
        if not piece:
            self._outcome = None
        elif not self._has_started:
            self._has_started = True
            if self._guarded is not None:
                self._guarded.on_first_byte()
            self._response.set_read_timeout(self._idle_timeout_s)
        return piece

    async def close(self) -> None:
        """Closes the response; see `ResponseBody`."""
        self._response.close()
        if self._guarded is not None:
            self._guarded.end(self._outcome)
        self._limiter.end(*self._slot)


class ObservedResponse:
    """A response whose bytes an observer passes on."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        """
        Args:
            pieces: the bytes.
            headers: the headers, filled by the time the first bytes arrive.
        """
        self._pieces, self.headers = pieces, headers

    async def read(self) -> bytes:
        """Returns the next bytes; see `ResponseBody`."""
        async for piece in self._pieces:
            if piece:
                return piece
        return b""

    async def close(self) -> None:
        """Ends the observer, which closes the response."""
        await self._pieces.aclose()


async def drain(response: ResponseBody) -> None:
    """Reads a response to its end after its last event, so that its connection can be reused."""
    with suppress(TimeoutError, RemoteError):
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            while await response.read():
                pass
