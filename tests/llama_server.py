"""A real llama.cpp server with the small weights, in a process of its own: `python tests/llama_server.py WEIGHTS`."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dragoman.backends import weights
from gateway import DEADLINE_S, MODEL

CONTEXT_TOKENS = 4096


@contextlib.contextmanager
def llama_server() -> Iterator[str]:
    """Its URL. It is there within a second or two, and has one place."""
    file = weights.find(MODEL)
    process = subprocess.Popen(
        [sys.executable, __file__, str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
        if process.stdout:
            process.stdout.close()


def main(file: Path) -> None:
    """Serve until SIGTERM."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    params.port = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja = params.endpoint_props = True
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait(signals)
    del server


if __name__ == "__main__":
    main(Path(sys.argv[1]))
