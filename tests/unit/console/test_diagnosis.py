"""What the page of an exchange says at its top: the cause, and settings that can be written as they are."""

import tomllib

import msgspec
import pytest

from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import servers
from dragoman.console.api import RowCall, TrafficRow
from dragoman.console.exchange.diagnosis import GatewayFacts, ServerFacts, explain_row
from dragoman.console.exchange.views import Diagnosis

OWN = GatewayFacts(reasks=True, path="/home/me/config.toml")
LEAKED = ["leaked_call_recovered", "json_repaired"]
BROKEN = ["leaked_call_recovered", "reasked", "incomplete_call", "malformed_arguments", "reask_failed"]


def row(*outcomes: str, warnings: list[str] | None = None, finish: str = "stop", error: str = "") -> TrafficRow:
    calls = [RowCall(tool="Read", outcome=outcome) for outcome in outcomes]
    state = "failed" if error else "done"
    return TrafficRow(
        id="req_1",
        began_s=0,
        state=state,
        model="coder",
        upstream="my.server",
        calls=calls,
        warnings=warnings or [],
        finish=finish,
        error=error,
    )


def explained(of: TrafficRow, provider: str = "", tool_mode: str = "auto", own: GatewayFacts = OWN) -> Diagnosis:
    known = servers.get(provider) if provider else None
    server = ServerFacts("my.server", known, tool_mode, bool(known.constrain) if known else None)
    found = explain_row(of, server, own)
    assert found is not None
    for remedy in found.remedies:  # each can be written into the file as it is
        for tables in tomllib.loads(remedy.toml).get("upstreams", {}).values():
            msgspec.convert({"url": "http://127.0.0.1/v1", **tables}, HttpConfig)
    return found


def test_leaked_call_names_the_server_and_the_setting_that_reads_its_calls() -> None:
    found = explained(row("recovered", warnings=LEAKED))
    assert "left one in the text" in found.cause
    assert found.remedies[0].toml == '[upstreams."my.server"]\ntool_mode = "parse"'
    assert found.remedies[0].path == OWN.path
    assert explained(row("recovered", warnings=LEAKED), tool_mode="parse").remedies == ()


def test_broken_call_names_only_what_was_not_tried_and_what_the_server_can_do() -> None:
    broken = row("incomplete", warnings=BROKEN)
    unknown = explained(broken)
    assert "another one when the gateway re-asked it" in unknown.cause
    assert unknown.remedies[0].toml.startswith('[upstreams."my.server"]\nprovider = ')
    assert "reask" not in str(unknown.remedies)
    assert explained(broken, "llama_cpp").remedies[0].toml.endswith('tool_mode = "prompt"')
    (remedy,) = explained(broken, "mlx_lm").remedies
    assert not remedy.toml
    assert "cannot enforce whole calls" in remedy.text
    off = explained(row("incomplete"), "mlx_lm", own=GatewayFacts(reasks=False, path=""))
    assert off.remedies[0].toml == "[guard]\nreask = true"


@pytest.mark.parametrize(
    ("of", "cause"),
    [
        (row("incomplete", finish="length"), "token limit"),
        (row("unknown"), "does not offer"),
        (row("valid", warnings=["reasked"]), "the second is right"),
        (row(error="UpstreamError: status 500"), "UpstreamError: status 500"),
    ],
)
def test_other_causes_are_named(of: TrafficRow, cause: str) -> None:
    assert cause in explained(of).cause


def test_nothing_is_said_about_a_whole_call() -> None:
    assert explain_row(row("valid"), None, OWN) is None


def test_server_that_has_leaked_before_is_named_with_the_setting_that_stays() -> None:
    server = ServerFacts("vllm", None, "auto", has_leaked=True)
    found = explain_row(row("repaired"), server, GatewayFacts(reasks=True, path="c.toml", is_new_file=True))
    assert found is None  # a call without repairs needs no explanation
    broken = explain_row(row("incomplete"), server, GatewayFacts(reasks=True, path="c.toml", is_new_file=True))
    assert broken is not None
    assert broken.remedies[-1].toml == '[upstreams.vllm]\ntool_mode = "parse"'
    assert broken.remedies[-1].is_new_file
