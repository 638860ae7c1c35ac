"""Finds out which remedies apply to an exchange."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dragoman.catalog.warning_codes import RemedyCondition
from dragoman.console.api import TrafficRow
from dragoman.console.exchange.diagnosis import ServerFacts, server_facts
from dragoman.console.exchange.lanes.model_lane import ADVICE
from dragoman.console.exchange.lanes.remedies import RemedyFacts, fit_lanes, fit_notes
from dragoman.console.exchange.views import ExchangeView
from dragoman.console.services import ConsoleServices

_REQUIRED: Final = frozenset(("required", "any", "tool", "function", "custom"))
"""Values of `tool_choice`, or of its `type`, that require a call."""


class _Choice(msgspec.Struct):
    tool_choice: Any = None


_CHOICE: Final = msgspec.json.Decoder(_Choice)


def fit_view(services: ConsoleServices, view: ExchangeView, body: bytes = b"") -> ExchangeView:
    """Returns the view of an exchange with the remedies that apply to it.

    Args:
        services: The services of the console.
        view: The view.
        body: The body of the client's request; empty: it is not known.
    """
    server = server_facts(services, view.row)
    reasks = services.app.snapshot.gateway.policy.reask
    conditions = frozenset(met_conditions(view.row, server, reasks=reasks, requires_call=_requires_call(body)))
    facts = RemedyFacts(conditions, "" if server is None else server.name)
    # The diagnosis has the advice in other words; as long as the model writes, it would be about an unfinished text.
    drops_advice = view.is_running or view.diagnosis is not None
    notes = [note for note in view.notes if not (drops_advice and note.code == ADVICE)]
    return msgspec.structs.replace(view, lanes=fit_lanes(view.lanes, facts), notes=fit_notes(notes, facts))


def met_conditions(
    row: TrafficRow, server: ServerFacts | None, *, reasks: bool, requires_call: bool
) -> Iterator[RemedyCondition]:
    """Yields the conditions that an exchange meets.

    Args:
        row: The exchange.
        server: Its upstream server; None: it has none.
        reasks: Whether the guard may re-ask a model.
        requires_call: Whether the request requires a call.
    """
    codes = {label.partition(":")[0] for label in row.warnings}
    if row.finish == "length":
        yield "is_cut"
    if not reasks and not codes & {"reasked", "reask_failed"}:
        yield "reask_is_off"
    if not requires_call:
        yield "choice_is_free"
    if server is not None and server.can_constrain is not False:
        is_constrained = server.can_constrain and server.tool_mode == "prompt"
        if not is_constrained:
            yield "can_constrain"


def _requires_call(body: bytes) -> bool:
    """Returns whether the body of a request requires a call, in any of the APIs."""
    try:
        choice = _CHOICE.decode(body).tool_choice if body else None
    except (msgspec.DecodeError, RecursionError):
        return False
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return isinstance(kind, str) and kind in _REQUIRED
