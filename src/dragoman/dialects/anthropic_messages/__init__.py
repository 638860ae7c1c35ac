"""Anthropic Messages: `front` answers clients, `request` asks a server behind, `reader` reads its answer."""

from typing import Final

from dragoman.core.contracts import Dialect
from dragoman.dialects.anthropic_messages.front import PING, Writer, read_request, status, write_error, write_reply
from dragoman.dialects.anthropic_messages.reader import Reader
from dragoman.dialects.anthropic_messages.request import write_request

DIALECT: Final = Dialect(
    name="anthropic_messages",
    path="/v1/messages",
    read_request=read_request,
    writer=Writer,
    write_reply=write_reply,
    write_error=write_error,
    status=status,
    ping=PING,
    write_request=write_request,
    reader=Reader,
)
