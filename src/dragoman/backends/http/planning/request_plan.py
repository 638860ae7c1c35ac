"""The plan of one request to a server: everything that sending it and reading its response need, computed once."""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.backends.http.model_modes import ModelMode
from dragoman.backends.http.planning.constrained_decoding import ConstraintFields
from dragoman.core.messages import Request, Tool
from dragoman.parsing.format import Format
from dragoman.wire.dialect import UpstreamRequest


class RequestPlan(Struct, frozen=True):
    """One request to the server, and what the reading of its response needs."""

    request: Request
    """The request of the client, untrimmed."""
    mode: ModelMode
    path: str
    """Path of the endpoint."""
    upstream: UpstreamRequest
    """The body, and the warnings about it."""
    format: Format | None
    """The format in which the model writes calls; None: the server parses them."""
    tools: tuple[Tool, ...]
    """The tools that the response may call, under the names that the server got."""
    client_names: Mapping[str, str]
    """The client's names of these tools."""
    prompt_suffix: str
    """What the prompt has opened of the reply, such as `<think>`."""
    constraint: ConstraintFields
    """The fields that constrain the model, also if this plan leaves them out."""
    without_grammar: bool = False
    """The constraint is left out because the server rejected it just now."""
