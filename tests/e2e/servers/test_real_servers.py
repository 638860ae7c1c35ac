"""Real upstream servers with a real model: a call, its result and the response, from all three APIs.

`make servers` runs all 36 cases: two servers, three modes, three APIs, streamed and complete. With MLX on two busy
cores, the first case of a mode reads the prompt and takes a minute, each further one 8 to 20 seconds (2026-11). The
suite runs one case of each mode, each over another API; with MLX only one in native mode.
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
"""The model's format by mode: that of the server's template, or, in prompt mode, the format that the model copies
best from two examples. With the Hermes format it repeats the last result instead of calling.
"""
APIS = dialects.names()


def cases(server: str, mode: str) -> Iterator[object]:
    for n, api in enumerate(APIS):
        for stream in (True, False):
            place = tuple(FORMATS).index(mode)
            is_own = n == place % len(APIS) and stream == (place != 1)
            in_suite = is_own and (server != "mlx" or mode == "native")
            name = f"{server}-{mode}-{api}-{'streamed' if stream else 'whole'}"
            yield pytest.param(server, mode, api, stream, id=name, marks=() if in_suite else pytest.mark.every)


CASES = [case for server in REAL for mode in FORMATS for case in cases(server, mode)]
Serve: TypeAlias = Callable[[str, str], tuple[Gateway, Real]]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Returns a function that starts a server in a mode and a gateway to it; it keeps only the latest pair running.

    The fixture has no parameters, since pytest would restart the server for each case.
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
def test_tool_round_trip_on_real_server(server: str, mode: str, api: str, stream: bool, serve: Serve) -> None:
    if server == "mlx" and sys.platform == "win32":
        pytest.skip("MLX has no build for Windows")
    gateway, behind = serve(server, mode)
    told = round_trip(gateway.url, behind.model, api, stream=stream)
    assert "20" in told  # degrees, from the tool result
