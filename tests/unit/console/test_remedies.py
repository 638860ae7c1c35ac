"""Remedies of warnings: only those that apply to the exchange, with the name of its server."""

import pytest

from dragoman.catalog.servers import providers
from dragoman.console.api import TrafficRow
from dragoman.console.exchange.diagnosis import ServerFacts
from dragoman.console.exchange.lanes.notes import warning_note
from dragoman.console.exchange.lanes.remedies import RemedyFacts, fit_lanes, fit_notes
from dragoman.console.exchange.remedy_facts import met_conditions
from dragoman.console.exchange.views import ExchangeNote, LaneBlock, lane, segments

CONSTRAINING = next(each for each in providers() if len(each.constrain) > 1)


def met(
    server: ServerFacts | None = None, *, reasks: bool = True, requires_call: bool = True, **row: object
) -> set[str]:
    full = TrafficRow(id="req_1", began_s=0.0, state="done", **row)  # type: ignore[arg-type]
    return set(met_conditions(full, server, reasks=reasks, requires_call=requires_call))


def fitted(code: str, *conditions: str, upstream: str = "") -> ExchangeNote:
    (note,) = fit_notes([warning_note(code, code)], RemedyFacts(frozenset(conditions), upstream))  # type: ignore[arg-type]
    return note


def test_remedies_that_do_not_apply_are_left_out() -> None:
    assert fitted("incomplete_call").remedy == ""
    assert fitted("incomplete_call", "reask_is_off").settings == ("guard.reask",)
    assert "max_tokens" in fitted("incomplete_call", "is_cut").remedy
    both = fitted("malformed_arguments", "reask_is_off", "can_constrain", upstream="my server")
    assert both.settings == ("guard.reask", 'upstreams."my server".tool_mode')
    assert both.remedy.startswith("Enable re-asking. Let the server enforce whole calls")
    assert fitted("call_in_text", "choice_is_free").remedy == 'Send tool_choice "required".'


def test_settings_of_servers_name_the_server() -> None:
    clamped = fitted("max_tokens_clamped", upstream="far")
    assert clamped.settings == ("upstreams.far.max_output_tokens",)
    assert clamped.meaning == "the requested maximum was lowered to `upstreams.far.max_output_tokens`"
    assert fitted("max_tokens_clamped").settings == ()  # the embedded engine has no such table


def test_notes_of_segments_are_fitted_too() -> None:
    block = LaneBlock(title="t", segments=segments("x", "broken", notes=[warning_note("incomplete_call", "m")]))
    [fit] = fit_lanes([lane("model", "", "", [block])], RemedyFacts(frozenset({"is_cut"})))
    assert "max_tokens" in fit.blocks[0].segments[0].notes[0].remedy


@pytest.mark.parametrize(
    ("provider", "mode", "expected"),
    [(None, "auto", True), (CONSTRAINING, "auto", True), (CONSTRAINING, "prompt", False)],
)
def test_server_that_enforces_calls_already_is_not_asked_to(provider: object, mode: str, expected: bool) -> None:
    server = ServerFacts("far", provider, mode, True if provider else None)  # type: ignore[arg-type]
    assert ("can_constrain" in met(server)) is expected


def test_conditions_follow_from_the_exchange() -> None:
    assert met() == set()
    assert met(finish="length") == {"is_cut"}
    assert met(reasks=False) == {"reask_is_off"}
    assert met(reasks=False, warnings=["reasked"]) == set()
    assert met(requires_call=False) == {"choice_is_free"}
    assert met(ServerFacts("far", None, "auto", False)) == set()
