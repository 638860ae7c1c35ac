"""Proxies between the same client and the same server behind: Dragoman, nginx and LiteLLM, each in its own process.

nginx and LiteLLM are looked up on PATH, and skipped if they are missing: `make bench-proxies` installs LiteLLM in an
environment of its own, and nginx is a system package (Debian's `nginx-light`).
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.client import Server, serving
from bench.server import MODELS
from dragoman import dialects

READY_S: Final = 180.0
"""LiteLLM takes half a minute to come up on a busy machine."""

_NGINX: Final = """\
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream behind {{ server 127.0.0.1:{behind}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""
_LITELLM_ENV: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # asks no server of its own
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "DISABLE_ADMIN_UI": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


def found() -> list[str]:
    """The names of those that are here. Dragoman always is, and under each name of an API as one that trusts."""
    others = {"nginx": _nginx_path(), "LiteLLM": shutil.which("litellm")}
    for name, path in others.items():
        if path is None:
            print(f"{name} is not here and is left out (bench/README.md)", file=sys.stderr)
    return ["Dragoman", *dialects.names(), *(name for name, path in others.items() if path)]


def _nginx_path() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def proxy(name: str, behind: int) -> Iterator[Server]:
    """The proxy of this name before the server at that port, for as long as it is needed."""
    match name:
        case "Dragoman":
            with serving("relay", str(behind)) as server:
                yield server
            return
        case trusted if trusted in dialects.names():
            with serving("relay", str(behind), trusted) as server:
                yield server
            return
        case "nginx":
            make = _nginx
        case "LiteLLM":
            make = _litellm
        case _:
            raise ValueError(name)
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        command, environ = make(Path(folder), port, behind)
        with _running(command, environ, port) as server:
            yield server


def _nginx(folder: Path, port: int, behind: int) -> tuple[Sequence[str], Mapping[str, str]]:
    settings = folder / "nginx.conf"
    settings.write_text(_NGINX.format(port=port, behind=behind))
    return [_nginx_path() or "nginx", "-p", str(folder), "-c", str(settings)], {}


def _litellm(folder: Path, port: int, behind: int) -> tuple[Sequence[str], Mapping[str, str]]:
    """Each model under its own name by Chat Completions, and as `claude/NAME` by Messages."""
    url = f"http://127.0.0.1:{behind}"
    rows = [
        f"- {{model_name: {shown}{model}, litellm_params: {{model: {api}/{model}, api_base: '{base}', api_key: k}}}}"
        for model in MODELS
        for shown, api, base in (("", "openai", f"{url}/v1"), ("claude/", "anthropic", url))
    ]
    settings = folder / "litellm.yaml"
    settings.write_text("model_list:\n" + "\n".join(rows) + "\nlitellm_settings: {num_retries: 0, telemetry: false}\n")
    command = ["litellm", "--config", str(settings), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return command, _LITELLM_ENV


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def _running(command: Sequence[str], environ: Mapping[str, str], port: int) -> Iterator[Server]:
    # What the project's own interpreter needs is not for another's.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, env={**clean, **environ}, stdout=silent, stderr=silent) as process:
        try:
            _wait(process, port)
            yield Server(port, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # nginx passes the question on to a server that does not have it
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"{process.args!r} did not come up")


def cpu_ns(pid: int) -> int:
    """CPU time of a process, its threads and its children so far (Linux)."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    own = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return own + sum(cpu_ns(int(child)) for child in children)
