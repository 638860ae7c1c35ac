"""Requests to a server of OpenAI Responses."""

from dragoman.core.contracts import Outgoing
from dragoman.core.errors import UnsupportedError
from dragoman.core.values import Request


def write_request(request: Request, model: str) -> Outgoing:
    """Raises: UnsupportedError: nothing is sent to servers of this API yet."""
    raise UnsupportedError("no server of OpenAI Responses can stand behind yet")
