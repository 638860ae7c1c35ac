"""Limits the size of HTTP responses of MCP servers; events have a limit of the SDK."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx2

MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of a response that is not a stream of events."""


def limit_response(response: "httpx2.Response") -> None:
    """Lets reading the body fail if it is too large, or compressed, so that its size is unknown."""
    import httpx2

    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        return
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    stream: httpx2.AsyncByteStream = response.stream
    is_compressed = response.headers.get("content-encoding", "identity") != "identity"

    class Limited(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if is_compressed:
                raise httpx2.StreamError("the response is compressed, although the request does not accept that")
            size = 0
            try:
                async for chunk in stream:
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise httpx2.StreamError(f"the response has more than {MAX_BYTES} bytes")
                    yield chunk
            except httpx2.TransportError as error:  # as a `StreamError`, it fails this call only
                raise httpx2.StreamError(f"the response ended early: {type(error).__name__}") from None

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Limited()
