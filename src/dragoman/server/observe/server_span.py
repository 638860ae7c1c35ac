"""The server span of each request, and what its access record adds to it (docs/tracing.md).

Only imported values are names and numbers: messages, arguments, and the values of a query are never recorded.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dragoman.core.backend import Attempts
from dragoman.server.client_watch import Scope
from dragoman.server.observe.access_log import NAME_LIMIT_CHARS, AccessRecord

if TYPE_CHECKING:
    from dragoman.tracing.exchange import ExchangeTrace, Tracing

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"))
_OTHER_METHOD: Final = "_OTHER"
_PORTS: Final = {"http": 80, "https": 443}
_DISCONNECTED: Final = 499


class ServerSpan:
    """The span of one request, from its head to the last byte of the response."""

    def __init__(
        self, tracing: "Tracing", scope: Scope, route: str, headers: Mapping[str, str], record: AccessRecord
    ) -> None:
        """Begins the span. From then on the record's trace headers are those for upstream servers.

        Args:
            tracing: Begins spans.
            scope: The scope of ASGI.
            route: The path as documented, such as `/v1/models/{id}`; empty: nothing is served there.
            headers: The request headers.
            record: The access record of the request.
        """
        method = scope["method"]
        name = method if method in _METHODS else "HTTP"
        attempts: Attempts = record.attempts
        self._record = record
        self._trace: ExchangeTrace | None
        self._trace, record.trace = tracing.begin(
            f"{name} {route}" if route else name,
            _request_attributes(scope, route, headers, record),
            record.trace,
            attempts,
        )

    def finish(self) -> None:
        """Ends the span, and those of attempts."""
        record, trace = self._record, self._trace
        if trace is None:
            return
        cancelled = record.status == _DISCONNECTED
        failed = not cancelled and record.cause is not None and (record.status >= 500 or record.status < 400)
        trace.finish(_response_attributes(record), record.cause, failed=failed, cancelled=cancelled, usage=record.usage)


def _request_attributes(scope: Scope, route: str, headers: Mapping[str, str], record: AccessRecord) -> dict[str, Any]:
    from dragoman.tracing import conventions as conv

    method, scheme = scope["method"], scope.get("scheme", "http")
    attributes: dict[str, Any] = {
        conv.HTTP_METHOD: method if method in _METHODS else _OTHER_METHOD,
        conv.URL_PATH: record.path[:NAME_LIMIT_CHARS],
        conv.URL_SCHEME: scheme,
        conv.OWN_REQUEST_ID: record.id,
    }
    if method not in _METHODS:
        attributes[conv.HTTP_METHOD_ORIGINAL] = method[:NAME_LIMIT_CHARS]
    if route:
        attributes[conv.HTTP_ROUTE] = route
    if version := scope.get("http_version", ""):
        attributes[conv.PROTOCOL_VERSION] = version
    if query := scope.get("query_string", b""):
        attributes[conv.URL_QUERY] = _redacted(query.decode("latin-1"))
    if client := scope.get("client"):
        attributes[conv.CLIENT_ADDRESS] = str(client[0])
    if agent := headers.get("user-agent", ""):
        attributes[conv.USER_AGENT] = agent[:NAME_LIMIT_CHARS]
    if host := headers.get("host", ""):
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
        attributes[conv.SERVER_ADDRESS] = name[:NAME_LIMIT_CHARS]
        attributes[conv.SERVER_PORT] = int(port) if port.isdecimal() and len(port) < 6 else _PORTS.get(scheme, 0)
    return attributes


def _response_attributes(record: AccessRecord) -> dict[str, Any]:
    from dragoman.tracing import conventions as conv
    from dragoman.tracing.attempt import distinct, name_text

    attributes: dict[str, Any] = {}
    if record.status:
        attributes[conv.HTTP_STATUS] = record.status
    if record.request is not None:
        attributes[conv.MODEL] = name_text(record.request.model)
        attributes[conv.API] = record.request.dialect or "passthrough"
    client = record.client
    named = {conv.KEY: client.key, conv.AGENT: client.agent, conv.ROLE: client.role}
    attributes |= {name: value for name, value in named.items() if value}
    if record.attempts.count:
        attributes[conv.UPSTREAM] = record.attempts.upstream
        attributes[conv.ATTEMPTS] = record.attempts.count
        if record.attempts.format:
            attributes[conv.FORMAT] = record.attempts.format
        if record.attempts.queue_s is not None:
            attributes[conv.QUEUE] = record.attempts.queue_s
    if record.is_passthrough:
        attributes[conv.PASSTHROUGH] = True
    if record.warnings:
        attributes[conv.WARNINGS] = distinct(record.warnings)
    calls: dict[str, int] = {}
    for (_, outcome), count in record.tally.outcomes.items():
        calls[outcome] = calls.get(outcome, 0) + count
    attributes |= {f"{conv.CALL_OUTCOMES}.{outcome}": count for outcome, count in calls.items()}
    if record.tally.steps:
        attributes[conv.REPAIRS] = distinct(step for _, step in record.tally.steps)
    if record.usage.cost_usd is not None:
        attributes[conv.COST] = record.usage.cost_usd
    return attributes


def _redacted(query: str) -> str:
    """Returns the query with `REDACTED` for each value, as it may be a key."""
    names = [pair.partition("=")[0] for pair in query[: 10 * NAME_LIMIT_CHARS].split("&")]
    return "&".join(f"{name[:NAME_LIMIT_CHARS]}=REDACTED" for name in names)
