"""OpenAI Chat Completions: `front` answers clients, `request` asks a server behind, `reader` reads its answer."""

from typing import Final

from dragoman.core import sse
from dragoman.core.contracts import Dialect
from dragoman.dialects.openai_chat.front import Writer, read_request, status, write_error, write_reply
from dragoman.dialects.openai_chat.reader import Reader
from dragoman.dialects.openai_chat.request import write_request

DIALECT: Final = Dialect(
    name="openai_chat",
    path="/v1/chat/completions",
    read_request=read_request,
    writer=Writer,
    write_reply=write_reply,
    write_error=write_error,
    status=status,
    ping=sse.comment("ping"),
    write_request=write_request,
    reader=Reader,
)
