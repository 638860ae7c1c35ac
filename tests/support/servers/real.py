"""Real servers with real weights, each in a process that ends with the test: llama-server and mlx_lm.server.

Each can put tools into the prompt and parse the calls (`native`), put them in and leave the calls in the text
(`parse`), or has no tools, since the model's own template has none (`prompt`).
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx2

from dragoman.backends.embedded import weights
from support.gateway import until

HERE: Final = Path(__file__).parent
HERMES: Final = HERE / "hermes.jinja"
"""A chat template with tools in the Hermes format."""
SMALL: Final = "smollm2-135m"
START_S: Final = 300.0
"""Time until a server responds; mlx_lm.server needs half a minute for imports on a busy machine."""


class Real(NamedTuple):
    """A running server."""

    url: str
    """The base URL with `/v1`."""
    model: str
    """The server's name of its model."""


@contextlib.contextmanager
def llama_server(
    template: Path | None = None,
    *,
    reads: bool = True,
    model: str = SMALL,
    context: int = 4096,
    slots: int = 1,
    file: Path | None = None,
) -> Iterator[str]:
    """The URL of llama.cpp's server, which starts within seconds, with so many slots of this context.

    Its weights are those of the model, or of the file.
    It has this chat template or the model's own one without tools; unless it `reads` calls, they stay in the text.
    """
    used = file or weights.find_weights(model)
    args = (str(used), str(context), str(slots), str(template or ""), *([] if reads else ["pure"]))
    with process([sys.executable, str(HERE / "llama_server.py"), *args]) as (server, log):
        yield until(lambda: first_url(server, log), "llama-server's URL", START_S) or ""


@contextlib.contextmanager
def llama(mode: str, context: int = 4096) -> Iterator[Real]:
    """llama.cpp's server."""
    with llama_server(None if mode == "prompt" else HERMES, reads=mode != "parse", context=context) as url:
        yield Real(f"{url}/v1", "smollm2")


@contextlib.contextmanager
def mlx(mode: str) -> Iterator[Real]:
    """mlx_lm.server, which parses calls if the template has `tool_call.name` (mlx_lm/tokenizer_utils.py, 0.32)."""
    from support.servers import convert

    template = HERMES.read_text()
    if mode == "parse":
        template = template.replace("tool_call.name", "tool_call['name']")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    args = ["--model", str(convert.folder()), "--host", "127.0.0.1", "--port", str(port)]
    if mode != "prompt":
        args += ["--chat-template", template]
    with process([sys.executable, "-m", "mlx_lm", "server", *args], HF_HUB_OFFLINE="1") as (server, log):
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/health", server, log), "an answer of mlx_lm.server", START_S)
        yield Real(f"{url}/v1", "default_model")


REAL: Final[Mapping[str, Callable[[str], contextlib.AbstractContextManager[Real]]]] = {"llama": llama, "mlx": mlx}


@contextlib.contextmanager
def process(command: Sequence[str], **settings: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Starts a process with its own home; its output goes to the file."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    with tempfile.TemporaryDirectory() as home:
        log = Path(home) / "log"
        with log.open("wb") as written:
            server = subprocess.Popen(
                list(command),
                env={**kept, "HOME": home, "LANG": "C.UTF-8", **settings},
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=subprocess.STDOUT,
            )
        try:
            yield server, log
        finally:
            server.terminate()
            server.communicate()


def first_url(server: "subprocess.Popen[bytes]", log: Path) -> str | None:
    """The URL in the server's log; fails if the server has ended."""
    text = log.read_text()
    assert server.poll() is None, f"ended: {text[-2000:]}"
    return next((line for line in text.splitlines() if line.startswith("http://")), None)


def answers(url: str, server: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Whether the server responds; fails if it has ended."""
    assert server.poll() is None, f"ended: {log.read_text()[-2000:]}"
    try:
        return httpx2.get(url, timeout=START_S, trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False
