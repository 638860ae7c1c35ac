"""Three gateways, two real llama-servers, Redis, PostgreSQL and nginx, each killed once under streams."""

import shutil

import pytest
from bench.replicas.__main__ import measure

from support import nginx, postgresql
from support.llama_server_program import llama_server_program

pytestmark = [pytest.mark.every, pytest.mark.model]


async def test_nothing_is_lost_when_each_process_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    llama_server_program()
    nginx.program()
    if not postgresql.programs() or not shutil.which("redis-server"):
        pytest.skip("no PostgreSQL or redis-server (Debian: postgresql, redis-server)")
    assert await measure(1, 6, 2), capsys.readouterr().out
