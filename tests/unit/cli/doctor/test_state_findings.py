"""What `dragoman doctor` reports about the servers of shared state."""

import pytest

from dragoman.cli.doctor.state_findings import state_found
from dragoman.state.config import StateConfig
from support import redis_server
from support.ports import free_port


async def test_nothing_is_reported_without_servers() -> None:
    assert await state_found(StateConfig()) == []


async def test_servers_that_do_not_respond_are_named_with_the_reason_and_without_passwords() -> None:
    port = free_port()
    config = StateConfig(f"redis://:secret@127.0.0.1:{port}/0", f"postgresql://u:secret@127.0.0.1:{port}/db")
    findings = await state_found(config)
    assert [(each.what, each.verdict) for each in findings] == [("state.url", "no"), ("state.database_url", "no")]
    for each in findings:
        assert "cannot be used" in each.text
        assert f"{port}" in each.text
        assert "refused" in each.text
        assert "secret" not in each.text


@pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not installed")
async def test_server_that_responds() -> None:
    with redis_server.running() as server:
        (finding,) = await state_found(StateConfig(url=server.url))
    assert finding.verdict == "ok"
