"""Says in one sentence what went wrong in an exchange, and what to write into the settings file against it.

It needs only the row of the exchange and facts about its server, so it is there without a capture too.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman import config as settings
from dragoman.backends.http.backend import HttpBackend
from dragoman.catalog.servers import Provider, providers
from dragoman.config.effective import key_as_toml
from dragoman.config.values import toml
from dragoman.console.api import TrafficRow
from dragoman.console.exchange.views import Diagnosis, Remedy
from dragoman.console.services import ConsoleServices
from dragoman.gateway.routing.router import backend_name

_BROKEN: Final = frozenset(("incomplete", "invalid"))
"""Outcomes of calls that the client cannot run."""


class ServerFacts(NamedTuple):
    """What is known of the upstream server of an exchange."""

    name: str
    provider: Provider | None
    """What kind of server it is; None: not known."""
    tool_mode: str
    """The setting."""
    can_constrain: bool | None = None
    """Whether it can constrain a model to whole calls, by a probe or its provider; None: not known."""
    has_leaked: bool = False
    """Whether the gateway reads the calls of this model itself since the server has left one in the text."""


class GatewayFacts(NamedTuple):
    """What is known of the gateway."""

    reasks: bool
    """Whether the guard may re-ask a model."""
    path: str
    """The settings file."""
    is_new_file: bool = False
    """Whether it does not exist yet."""


def diagnose(services: ConsoleServices, row: TrafficRow) -> Diagnosis | None:
    """Returns what happened in an exchange; None: nothing that needs an explanation.

    Args:
        services: The services of the console.
        row: The exchange.
    """
    gateway = services.app.snapshot.gateway
    path = (None if services.source is None else services.source.path()) or settings.default_path()
    own = GatewayFacts(reasks=gateway.policy.reask, path=str(path), is_new_file=not path.exists())
    return explain_row(row, server_facts(services, row), own)


def server_facts(services: ConsoleServices, row: TrafficRow) -> ServerFacts | None:
    """Returns what is known of the server of an exchange; None: it is not an upstream server.

    Args:
        services: The services of the console.
        row: The exchange.
    """
    backends = services.app.snapshot.gateway.backends
    backend = next((each for each in backends if backend_name(each) == row.upstream), None)
    if not isinstance(backend, HttpBackend):
        return None
    provider, measured = backend.planner.provider, backend.modes.measured(row.upstream_model)
    is_known = provider is not None or measured is not None
    methods = [*(provider.constrain if provider else ()), *(measured.constrain if measured else ())]
    is_measured = measured is not None and measured.tool_mode == "parse"
    return ServerFacts(
        name=row.upstream,
        provider=provider,
        tool_mode=backend.config.tool_mode,
        can_constrain=bool(methods) if is_known else None,
        has_leaked=row.tool_mode == "parse" and backend.config.tool_mode == "auto" and not is_measured,
    )


def explain_row(row: TrafficRow, server: ServerFacts | None, own: GatewayFacts) -> Diagnosis | None:
    """Returns what happened in an exchange, from facts alone; see `diagnose`.

    Args:
        row: The exchange.
        server: Its server; None: another backend answered.
        own: The gateway.
    """
    found = _explain(row, server, own)
    if found is None or server is None or not server.has_leaked:
        return found
    text = (
        "The server has left an earlier call of this model in its text, so the gateway reads its calls until it "
        "restarts. Keep that."
    )
    return replace(found, remedies=(*found.remedies, _setting(text, f'{_table(server)}\ntool_mode = "parse"', own)))


def _explain(row: TrafficRow, server: ServerFacts | None, own: GatewayFacts) -> Diagnosis | None:
    codes = {label.partition(":")[0] for label in row.warnings}
    outcomes = {call.outcome for call in row.calls}
    model = row.model or "The model"
    if row.state == "running":
        return None
    if row.finish == "length" and outcomes & _BROKEN:
        remedy = Remedy("Raise max_tokens of the request, in the settings of the agent.")
        return Diagnosis(f"The token limit ended the response of {model} in the middle of a call.", (remedy,))
    if outcomes & _BROKEN:
        return Diagnosis(_broken_cause(model, codes), tuple(_broken_remedies(codes, server, own)))
    if "unknown" in outcomes or "unknown_tool" in codes:
        text = f"{model} called a tool that the request does not offer."
        return Diagnosis(text, (Remedy("Offer the tool in the agent, or use a model that keeps to the offered ones."),))
    if "leaked_call_recovered" in codes and server is not None:
        return _leaked(model, server, own)
    if "reasked" in codes:
        text = (
            f"The first response of {model} had an error in a call; the gateway re-asked it, and the second is right."
        )
        return Diagnosis(text)
    if repairs := sorted({step for call in row.calls for step in call.repairs}):
        text = (
            f"A call of {model} had small errors, which the gateway repaired ({', '.join(repairs)}). Nothing to change."
        )
        return Diagnosis(text)
    return Diagnosis(f"The request failed: {row.error}") if row.error else None


def _broken_cause(model: str, codes: set[str]) -> str:
    second = ", and another one when the gateway re-asked it" if "reask_failed" in codes else ""
    what = (
        "a call that does not match the tool's schema" if "invalid_call" in codes else "a call that is not whole JSON"
    )
    result = (
        "The client got it with its errors."
        if "invalid_call" in codes
        else "Such a call is never sent as a call, so the client got it as text."
    )
    return f"{model} wrote {what}{second}. {result}"


def _broken_remedies(codes: set[str], server: ServerFacts | None, own: GatewayFacts) -> Iterator[Remedy]:
    if server is not None:
        yield from _constrain(server, own)
    if not own.reasks and not codes & {"reasked", "reask_failed"}:
        yield _setting("Let the gateway show the model its error, and re-ask it once.", "[guard]\nreask = true", own)
    yield Remedy(_other_model(server))


def _other_model(server: ServerFacts | None) -> str:
    text = "Use a larger model, or one that is trained for tool calls: small ones write broken calls often."
    if server is None or server.can_constrain is not False:
        return text
    names = ", ".join(each.title for each in _constraining())
    return f"{text} Or run it with {names}: this server cannot enforce whole calls (constrained decoding)."


def _constraining() -> list[Provider]:
    """Returns the providers that constrain a model in several ways."""
    return [each for each in providers() if len(each.constrain) > 1]


def _constrain(server: ServerFacts, own: GatewayFacts) -> Iterator[Remedy]:
    """Yields how the server is made to enforce whole calls."""
    if server.can_constrain is None:
        known = _constraining()
        names = ", ".join(toml(each.name) for each in known)
        text = "If the server is one of these, name it: it then enforces whole calls (constrained decoding)."
        table = f'provider = {toml(known[0].name)}  # one of {names}\ntool_mode = "prompt"'
        yield _setting(text, f"{_table(server)}\n{table}", own)
    elif server.can_constrain and server.tool_mode != "prompt":
        text = "Write the tools into the prompt, so that the server enforces whole calls (constrained decoding)."
        yield _setting(text, f'{_table(server)}\ntool_mode = "prompt"', own)


def _leaked(model: str, server: ServerFacts, own: GatewayFacts) -> Diagnosis:
    cause = (
        f"The server {server.name} was asked to read the calls of {model}, and left one in the text. The gateway "
        "recognized it there, so the client got a call."
    )
    if server.tool_mode == "parse":
        return Diagnosis(cause)
    text = (
        "Let the gateway read the calls of this server. It does so by itself after the first leak, until it restarts."
    )
    return Diagnosis(
        cause,
        (
            _setting(text, f'{_table(server)}\ntool_mode = "parse"', own),
            Remedy("Or start the server with its own parser for this model."),
        ),
    )


def _setting(text: str, lines: str, own: GatewayFacts) -> Remedy:
    return Remedy(text=text, toml=lines, path=own.path, is_new_file=own.is_new_file)


def _table(server: ServerFacts) -> str:
    return f"[{key_as_toml(f'upstreams.{server.name}.url').removesuffix('.url')}]"
