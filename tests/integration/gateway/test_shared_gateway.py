"""Gateways of several processes, as `compose` builds them with one shared folder."""

import asyncio
import textwrap
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman import compose
from dragoman.backends.http.config import HttpConfig
from dragoman.config import Config
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import QueueFullError
from dragoman.core.events import AnyEvent, Finish
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Message, Request, Text
from dragoman.gateway.gateway import Gateway
from support.events import all_events
from support.processes import python_process
from support.scripted_backend import served, silent_then_plain

SEALING = textwrap.dedent("""
    import sys
    from pathlib import Path
    from dragoman import compose
    from dragoman.config import Config

    print("ready", flush=True)
    sys.stdin.readline()
    gateway = compose.build_gateway(Config(), embedded=False, shared_dir=Path(sys.argv[1]))
    print(gateway.seal.seal("a summary"), flush=True)
""")


@pytest.mark.parametrize("home_exists", [True, False])
def test_processes_sign_compacted_conversations_with_one_key(
    home_exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all start at the same time for the first time, and if the key cannot be stored for later."""
    home, shared_dir = tmp_path / "home", tmp_path / "shared"
    shared_dir.mkdir()
    if not home_exists:
        home.touch()  # a file, in which no folder can be created
    monkeypatch.setenv("DRAGOMAN_HOME", str(home))
    with ExitStack() as stack:
        processes = [stack.enter_context(python_process(SEALING, shared_dir)) for _ in range(3)]
        assert [process.read() for process in processes] == ["ready"] * 3
        for process in processes:
            process.write("go")
        assert len({process.read() for process in processes}) == 1
    key = (home if home_exists else shared_dir) / "seal.key"
    assert key.stat().st_mode & 0o777 == 0o600


async def test_concurrency_limit_of_settings_holds_over_gateways(tmp_path: Path) -> None:
    request = Request("m", (Message("user", (Text("hi"),)),))
    async with served(silent_then_plain) as far:
        upstream = HttpConfig(f"{far.url}/v1", models=("m",), max_concurrency=1, max_queue=0)
        one, two = (
            compose.build_gateway(Config(upstreams={"far": upstream}), embedded=False, shared_dir=tmp_path)
            for _ in range(2)
        )
        await one.start()
        await two.start()
        first = asyncio.ensure_future(_collect(one, request))
        await far.backend.begun.wait()
        with pytest.raises(QueueFullError, match="the one concurrency slot of far"):
            await _collect(two, request)
        far.backend.go.set()
        assert isinstance((await first)[-1], Finish)
        assert isinstance((await _collect(two, request))[-1], Finish)
        await one.close()
        await two.close()


async def _collect(gateway: Gateway, request: Request) -> list[AnyEvent]:
    return await all_events(gateway.generate(request, ExchangeContext("1", 0, random_id)))
