"""The proxies that are measured, each in its own process: Dragoman in three configurations, others, and bare stacks.

Programs that are not installed are named on standard error and omitted. `make bench` installs all but nginx.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.proxies.processes import ServerProcess, free_port, running
from bench.proxies.scenarios import Api, Scenario

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = ROOT / ".cache/proxies"
"""Python environment with LiteLLM and SMG; `node_modules` below `npm` has claude-code-router."""


class Start(NamedTuple):
    """How a server is started."""

    command: list[str]
    environ: Mapping[str, str] = {}


class Contender(NamedTuple):
    """A proxy in one configuration."""

    name: str
    """First column of the table."""
    start: Callable[[Path, int, int], Start]
    """Gets a folder for its files, its port, and the upstream's port."""
    api: Api = "chat"
    """API of its client; the upstream's is Chat Completions."""
    model: str = "bench"
    tool_model: str = ""
    """Model whose tool calls it parses from the text; empty: it forwards them as text."""
    is_slow: bool = False
    """Whether it takes part in every third round only, as a round takes it many seconds."""
    open_streams: int = 1000
    """Streams that are open when its memory is measured."""
    program: Callable[[], Path | None] = lambda: Path(sys.executable)
    """Path of its program; None: it is not installed."""

    def model_for(self, scenario: Scenario) -> str:
        """Returns the model to request."""
        return self.tool_model if scenario.is_tool_call and self.tool_model else self.model


def dragoman(folder: Path, port: int, upstream: int, source: Path = ROOT / "src") -> Start:
    """Writes the settings of Dragoman: upstream servers for each configuration, all at one port.

    Args:
        folder: gets the settings file.
        port: its port.
        upstream: the upstream's port.
        source: folder that contains the package `dragoman`.
    """
    rows = {"passthrough": "passthrough = true", "parsed": "", "prose": 'tool_mode = "parse"\ncall_format = "hermes"'}
    tables = [
        f'[upstreams.{name}]\nurl = "http://127.0.0.1:{upstream}/v1"\nmodels = ["bench"]\nauto_probe = false\n{row}\n'
        for name, row in rows.items()
    ]
    settings = folder / "dragoman.toml"
    settings.write_text("\n".join([f"[server]\nport = {port}\n", *tables]))
    # `python -m bench.records` measures records: they are written by another thread, whose batches vary.
    environ = {"PYTHONPATH": str(source), "DRAGOMAN_RECORDS_ENABLED": "false"}
    return Start([sys.executable, "-m", "dragoman", "serve", "--config", str(settings)], environ)


_NGINX: Final = """\
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream backend {{ server 127.0.0.1:{upstream}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def nginx_program() -> Path | None:
    """Returns the path of nginx on PATH or in /usr/sbin; None: it is not installed."""
    path = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Path(path) if path else None


def _nginx(folder: Path, port: int, upstream: int) -> Start:
    settings = folder / "nginx.conf"
    settings.write_text(_NGINX.format(port=port, upstream=upstream))
    return Start([str(nginx_program()), "-p", str(folder), "-c", str(settings)])


def _installed(*paths: str) -> Callable[[], Path | None]:
    """Returns the path below `ENVIRONMENT` if all the paths exist."""
    found = [ENVIRONMENT / path for path in paths]
    return lambda: found[0] if all(path.exists() for path in found) else None


_LITELLM: Final = _installed("bin/litellm")
_SMG: Final = _installed("bin/smg")
_CCR: Final = _installed("npm/node_modules/@musistudio/claude-code-router/dist/cli.js")

_LITELLM_ENVIRON: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it is downloaded at the start
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "DISABLE_ADMIN_UI": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


def _litellm(folder: Path, port: int, upstream: int) -> Start:
    settings = folder / "litellm.json"
    model = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "sk-upstream"}
    # Without the last setting, Messages become requests of the Responses API, which the upstream does not have.
    options = {"num_retries": 0, "telemetry": False, "use_chat_completions_url_for_anthropic_messages": True}
    content = {"model_list": [{"model_name": "bench", "litellm_params": model}], "litellm_settings": options}
    settings.write_text(json.dumps(content))  # JSON is YAML, too
    command = [str(_LITELLM()), "--config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
    return Start([*command, "--num_workers", "1"], _LITELLM_ENVIRON)


def _smg(folder: Path, port: int, upstream: int) -> Start:
    command = [str(_SMG()), "launch", "--backend", "openai", "--worker-urls", f"http://127.0.0.1:{upstream}"]
    address = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1"]
    return Start([*command, *address, "--prometheus-port", str(free_port()), "--log-level", "warn"])


def _ccr(folder: Path, port: int, upstream: int) -> Start:
    settings = folder / ".claude-code-router/config.json"
    settings.parent.mkdir()
    url = f"http://127.0.0.1:{upstream}/v1/chat/completions"
    provider = {"name": "upstream", "api_base_url": url, "api_key": "sk-upstream", "models": ["bench"]}
    options = {"LOG": False, "HOST": "127.0.0.1", "PORT": port, "NON_INTERACTIVE_MODE": True}
    settings.write_text(json.dumps({**options, "Providers": [provider], "Router": {"default": "upstream,bench"}}))
    node = Path(sys.prefix, "bin/node")
    command = [str(node) if node.exists() else "node", str(_CCR()), "start"]
    return Start(command, {"HOME": str(folder), "NODE_ENV": "production", "SERVICE_PORT": str(port)})


def _floor(client: str) -> Callable[[Path, int, int], Start]:
    def start(folder: Path, port: int, upstream: int) -> Start:
        arguments = [str(port), str(upstream), client]
        return Start([sys.executable, "-m", "bench.proxies.floor", *arguments], {"PYTHONPATH": str(ROOT)})

    return start


PASSTHROUGH: Final = "Dragoman, passthrough"
PARSED: Final = "Dragoman, parsed"
TRANSLATED: Final = "Dragoman, Messages → Chat Completions"
LITELLM: Final = "LiteLLM"
LITELLM_TRANSLATED: Final = "LiteLLM, Messages → Chat Completions"
NGINX: Final = "nginx"
SMG: Final = "SMG"
BARE: Final = "bare stack, own HTTP client"
CCR: Final = "claude-code-router, Messages → Chat Completions"
OURS: Final = (PASSTHROUGH, PARSED, TRANSLATED)

CONTENDERS: Final = (
    Contender(PASSTHROUGH, dragoman, model="passthrough/bench"),
    Contender(PARSED, dragoman, model="parsed/bench", tool_model="prose/bench"),
    Contender(TRANSLATED, dragoman, api="messages", model="parsed/bench", tool_model="prose/bench"),
    Contender(NGINX, _nginx, program=nginx_program),
    Contender(BARE, _floor("lean")),
    Contender("bare stack, aiohttp", _floor("aiohttp")),
    Contender(SMG, _smg, program=_SMG),
    Contender(CCR, _ccr, api="messages", model="upstream,bench", program=_CCR, is_slow=True),
    Contender(LITELLM, _litellm, program=_LITELLM, is_slow=True, open_streams=250),
    Contender(LITELLM_TRANSLATED, _litellm, api="messages", program=_LITELLM, is_slow=True, open_streams=250),
)


def installed() -> list[Contender]:
    """Returns the contenders whose programs are installed, and names the others on standard error."""
    for contender in CONTENDERS:
        if contender.program() is None:
            print(f"{contender.name} is not installed and is omitted (bench/README.md)", file=sys.stderr)
    return [contender for contender in CONTENDERS if contender.program()]


@contextmanager
def serving(contender: Contender, folder: Path, upstream: int) -> Iterator[ServerProcess]:
    """Runs the contender; the folder must be empty and gets its files."""
    port = free_port()
    start = contender.start(folder, port, upstream)
    # Settings of this interpreter do not apply to those of the others.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DRAGOMAN_"))}
    with running(start.command, {**inherited, **start.environ}, port, folder) as server:
        yield server
