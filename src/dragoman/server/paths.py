"""Resolves request paths: the paths that are served, and common mistakes in a base URL.

    /chat/completions, /v1/v1/messages, /openai/v1/responses, /api/v1/models, //v1/models/    as the path with one /v1
    /openai/deployments/NAME/chat/completions                                       Azure's, for the model NAME

For an unknown path, the error names the base URL that the client should use, where it can be derived.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from dragoman.core.errors import NotFoundError, quote
from dragoman.server.client_watch import Scope

CONSOLE: Final = "/console"
"""Path of the console; the rest of it is below."""
PASSTHROUGH_PATHS: Final = (
    "/v1/embeddings",
    "/v1/completions",
    "/v1/rerank",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/moderations",
)
"""Paths of requests that are passed through to the upstream server."""
_PREFIXES: Final = re.compile(r"(?:/(?:openai|anthropic|api|v1))+(?=/)")
_AZURE: Final = re.compile(r"/deployments/([^/]+)(/.+)")
_ABSENT: Final = re.compile(
    r"(?:^|/)(batches|files|uploads|realtime|assistants|threads|vector_stores|fine_tuning|conversations|evals|containers)"
    r"(?:/|$)"
)
_MAX_CHARS: Final = 2048
"""Maximum length in characters of a path that is corrected."""


class ResolvedPath(NamedTuple):
    """What a path stands for."""

    path: str
    model: str = ""
    """The model that the path names; empty: the body names it."""


def resolve_path(path: str, is_served: Callable[[str], bool]) -> ResolvedPath:
    """Returns the served path for this one, or the same path if there is none."""
    if is_served(path) or len(path) > _MAX_CHARS:
        return ResolvedPath(path)
    plain = re.sub("/{2,}", "/", path)
    plain = plain.rstrip("/") or "/"
    if is_served(plain):
        return ResolvedPath(plain)
    prefix = _PREFIXES.match(plain)
    rest, model = plain[prefix.end() if prefix else 0 :], ""
    if azure := _AZURE.fullmatch(rest):
        model, rest = azure[1], azure[2]
    return ResolvedPath(f"/v1{rest}", model) if is_served(f"/v1{rest}") else ResolvedPath(path)


def not_found(method: str, path: str, served: Iterable[str], routes: Iterable[str]) -> NotFoundError:
    """Returns the error for an unknown path.

    Args:
        method: the HTTP method.
        path: the path of the request.
        served: the paths of the APIs.
        routes: all paths.
    """
    message = f"nothing is served at {method} {quote(path)}"
    if end := next((one for one in served if path.endswith(one.removeprefix("/v1"))), None):
        base = (
            "has no /v1 for Anthropic clients" if end.startswith("/v1/messages") else "ends in /v1 for OpenAI clients"
        )
        return NotFoundError(f"{message}; send this to {end}: the base URL {base}, and has no other path")
    if absent := _ABSENT.search(path[:_MAX_CHARS]):
        return NotFoundError(
            f"{message}: {absent[1]} are not available in this gateway; use the vendor's own API for them"
        )
    return NotFoundError(f"{message}; there are {', '.join(routes)}")


def is_console_path(scope: Scope) -> bool:
    """Returns whether the console serves the path of this request."""
    path = own_path(scope)
    return path.startswith(CONSOLE) and path[len(CONSOLE) : len(CONSOLE) + 1] in ("", "/")


def own_path(scope: Scope) -> str:
    """Returns the path relative to where this application is mounted; ASGI includes the mount path."""
    root, path = scope.get("root_path", "").rstrip("/"), str(scope["path"])
    return path[len(root) :] or "/" if root and f"{path}/".startswith(f"{root}/") else path


def join_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Returns the headers by name; repeated headers are joined with commas, as HTTP specifies."""
    joined = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    if len(joined) < len(headers):
        joined = {}
        for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers):
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
