"""Real servers behind the gateway, a real model in them: a call, its result and the answer, from all three APIs.

All 36 of two servers, three modes, three APIs, streamed and whole, are `make servers`. With MLX on two busy cores the
first of a mode, which reads the prompt, takes a minute, each further one 8 to 20 seconds (2026-11): the suite has 2 of
its 18, with tools of its own, streamed and whole, each by another API.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from dragoman import dialects
from support import ran_pairs
from support.gateway import Gateway, running
from support.servers.real import REAL, Real
from support.servers.rounds import round_trip

pytestmark = pytest.mark.model

FORMATS = {"native": "hermes", "parse": "hermes", "prompt": "pythonic"}
"""By mode, what the model writes: what the server's template shows it, or, where it is shown by us, what of all formats
it copies best from two examples. In that of Hermes it repeats the last result in their stead.
"""
APIS = dialects.names()


def cases(server: str, mode: str) -> Iterator[object]:
    for n, api in enumerate(APIS):
        for stream in (True, False):
            in_suite = server != "mlx" or (mode == "native" and n == stream)
            name = f"{server}-{mode}-{api}-{'streamed' if stream else 'whole'}"
            yield pytest.param(server, mode, api, stream, id=name, marks=() if in_suite else pytest.mark.every)


CASES = [case for server in REAL for mode in FORMATS for case in cases(server, mode)]
Serve: TypeAlias = Callable[[str, str], tuple[Gateway, Real]]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Gives a server in a mode, and a gateway to it: the same as long as the same is asked for, and one at a time.

    No parameter of the fixture, as pytest would start it anew for each case.
    """
    with contextlib.ExitStack() as running_one:
        made: dict[tuple[str, str], tuple[Gateway, Real]] = {}

        def served(server: str, mode: str) -> tuple[Gateway, Real]:
            if (server, mode) not in made:
                running_one.close()
                made.clear()
                behind = running_one.enter_context(REAL[server](mode))
                gateway = running_one.enter_context(gateway_to(behind, mode, tmp_path_factory.mktemp("home")))
                made[server, mode] = gateway, behind
            return made[server, mode]

        yield served


def gateway_to(behind: Real, mode: str, home: Path) -> "contextlib.AbstractContextManager[Gateway]":
    settings = {"url": behind.url, "tool_mode": mode, "call_format": FORMATS[mode], "models": [behind.model]}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    config = home / "config.toml"
    config.write_text(f"[upstreams.behind]\n{''.join(lines)}")
    return running(home, "--config", str(config))


@pytest.mark.ran(ran_pairs.PYTHON, {"llama": "llama-server", "mlx": "mlx_lm.server"})
@pytest.mark.parametrize(("server", "mode", "api", "stream"), CASES)
def test_a_call_its_result_and_the_answer(server: str, mode: str, api: str, stream: bool, serve: Serve) -> None:
    if server == "mlx" and sys.platform == "win32":
        pytest.skip("MLX has no build for Windows")
    gateway, behind = serve(server, mode)
    told = round_trip(gateway.url, behind.model, api, stream=stream)
    assert "20" in told  # degrees, of the result
