"""Errors of the HTTP client, named as in httpx."""


class HttpError(Exception):
    """A request failed in transport; base of the others."""


class ConnectError(HttpError):
    """No connection could be established."""

    def __init__(self, os_error: OSError) -> None:
        super().__init__(str(os_error))
        self.os_error = os_error


class ConnectTimeout(HttpError):
    """No connection was established in time, including TLS and proxy."""


class ProxyError(HttpError):
    """The proxy cannot be reached, or refused the connection."""


class ReadTimeout(HttpError):
    """The server sent nothing, or did not read the request, for too long."""


class ReadError(HttpError):
    """The connection was closed in the middle of a response."""


class RemoteProtocolError(HttpError):
    """The server sent an invalid HTTP response."""


class RemoteDisconnected(HttpError):
    """The server closed the connection before the head of its response was complete."""


class DecodingError(HttpError):
    """The body has a content encoding that is not supported, or is not valid in it."""


class LocalProtocolError(HttpError):
    """The request cannot be written as HTTP."""
