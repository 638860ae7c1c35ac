"""Servers that are too large for the suite: round trips through a running one, and its recording.

    make vllm ARGS="--record"
    make exo ARGS="--url http://127.0.0.1:52415 --model mlx-community/… --record"

vLLM is started here; exo has no package and must already run, with any model. To repeat the recording, it must have
the small weights from `python -m support.servers.convert`, with the template hermes.jinja.
"""

import argparse
import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx2

from dragoman import dialects
from support.gateway import running, until
from support.servers import convert
from support.servers.real import HERMES, Real, answers, process
from support.servers.recorded import record
from support.servers.rounds import round_trip

START_S: Final = 1200.0
"""vLLM needs minutes for imports on a busy machine."""
NAMES: Final = ("vllm", "exo")
MODES: Final = ("native", "parse")
"""exo leaves calls in its text; in native mode they are recovered as leaked calls."""


@contextlib.contextmanager
def vllm(command: str) -> Iterator[Real]:
    """vLLM with its own parser of Hermes calls."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    args = ["serve", str(convert.folder()), "--served-model-name", "smollm2", "--host", "127.0.0.1"]
    args += ["--port", str(port), "--chat-template", str(HERMES), "--dtype", "bfloat16", "--max-model-len", "2048"]
    args += ["--enforce-eager", "--max-num-seqs", "4", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with process([command, *args], **settings) as (server, log):
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/health", server, log), "an answer of vLLM", START_S)
        yield Real(f"{url}/v1", "smollm2")


def trips(name: str, behind: Real) -> None:
    """Runs all round trips through a server, over every client API."""
    for mode in MODES:
        with tempfile.TemporaryDirectory() as home:
            config = Path(home) / "config.toml"
            settings = (
                f'url = "{behind.url}"\nmodels = ["{behind.model}"]\ntool_mode = "{mode}"\ncall_format = "hermes"\n'
            )
            config.write_text(f"[upstreams.behind]\n{settings}")
            with running(Path(home), "--config", str(config)) as gateway:
                for api in dialects.names():
                    for stream in (True, False):
                        told = round_trip(gateway.url, behind.model, api, stream=stream)
                        print(f"{name} {mode} {api} {'streamed' if stream else 'whole'}: {told}", flush=True)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("name", choices=NAMES)
    args.add_argument("--command", help="of vLLM, to start it")
    args.add_argument("--url", help="of a server that runs, without /v1")
    args.add_argument("--model", default="smollm2")
    args.add_argument("--record", action="store_true", help="write tests/data/servers anew")
    given = args.parse_args()
    if not given.command and not given.url:
        args.error("expected --url of a server that runs, got none")
    behind = contextlib.nullcontext(Real(f"{given.url}/v1", given.model)) if given.url else vllm(given.command)
    with behind as server:
        trips(given.name, server)
        if given.record:
            url = server.url.removesuffix("/v1")
            version = httpx2.get(f"{url}/version", trust_env=False) if given.command else None
            what = f"vLLM {version.json()['version']}, hermes tool parser" if version else f"{given.name}, as it ran"
            print(record(given.name, server.model, url, what, f'make {given.name} ARGS="--record"'))


if __name__ == "__main__":
    main()
