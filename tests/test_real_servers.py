"""Real servers behind the gateway, a real model in them: a call, its result and the answer, from all three APIs.

All 36 of two servers, three modes, three APIs, streamed and whole, are `make servers`. MLX takes 10 to 40 seconds for
each on two busy cores, so that the suite has 6 of its 18: every mode, streamed and whole, each by another API.
"""

import contextlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dragoman import dialects
from gateway import Gateway, running
from servers.real import REAL, Real
from servers.rounds import round_trip

pytestmark = pytest.mark.model

FORMATS = {"native": "hermes", "parse": "hermes", "inject": "pythonic"}
"""By mode, what the model writes: what the server's template shows it, or, where it is shown by us, what of all formats
it copies best from two examples. In that of Hermes it repeats the last result in their stead.
"""
NEEDS = {"llama": ("xllamacpp",), "mlx": ("mlx_lm", "gguf")}
APIS = dialects.names()


def cases(server: str, mode: str) -> Iterator[object]:
    for n, api in enumerate(APIS):
        for stream in (True, False):
            in_suite = server != "mlx" or n == (list(FORMATS).index(mode) + stream) % len(APIS)
            name = f"{server}-{mode}-{api}-{'streamed' if stream else 'whole'}"
            yield pytest.param((server, mode), api, stream, id=name, marks=() if in_suite else pytest.mark.every)


CASES = [case for server in REAL for mode in FORMATS for case in cases(server, mode)]


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Real]]:
    server, mode = request.param
    if not all(map(find_spec, NEEDS[server])):
        pytest.skip(f"needs {', '.join(NEEDS[server])}")
    with REAL[server](mode) as behind, gateway_to(behind, mode, tmp_path_factory.mktemp("home")) as gateway:
        yield gateway, behind


def gateway_to(behind: Real, mode: str, home: Path) -> "contextlib.AbstractContextManager[Gateway]":
    settings = {"url": behind.url, "mode": mode, "format": FORMATS[mode], "models": [behind.model]}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    config = home / "config.toml"
    config.write_text(f"[servers.behind]\n{''.join(lines)}")
    return running(home, "--config", str(config))


@pytest.mark.parametrize(("served", "api", "stream"), CASES, indirect=["served"])
def test_a_call_its_result_and_the_answer(served: tuple[Gateway, Real], api: str, stream: bool) -> None:
    gateway, behind = served
    told = round_trip(gateway.url, behind.model, api, stream=stream)
    assert "20" in told  # degrees, of the result
