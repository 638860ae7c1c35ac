"""The processes of a deployment on loopback, each of which can be killed and started again with the same data."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
import redis

from bench.proxies.processes import free_port
from dragoman.backends.embedded import weights
from support import nginx

GATEWAYS: Final = 3
LLAMAS: Final = ("one", "two")
SLOT_TOKENS: Final = 512
READY_S: Final = 60.0
_POLL_S: Final = 0.05
_NOBODY: Final = 65534

SETTINGS: Final = """
[embedded]
enabled = false

[server]
api_keys = ["{key}"]
# The headers, which name the upstream server, wait for it.
max_status_delay_s = 60

[keys.limited]
secret = "{limited}"
requests_per_minute = 1000000
budget_tokens_per_day = 1000000000

[response_store]
seal_key = "{key}"

[records]
url = "postgresql://postgres@127.0.0.1:{postgresql}/postgres"

[[routes]]
model = "smollm2"
use = ["one/smollm2", "two/smollm2"]
balance = "prefix"
"""
STATE: Final = """
[state]
url = "redis://127.0.0.1:{redis}/0"
database_url = "postgresql://postgres@127.0.0.1:{postgresql}/postgres"
"""
UPSTREAM: Final = """
[upstreams.{name}]
url = "http://127.0.0.1:{port}/v1"
provider = "llama_cpp"
models = ["smollm2"]
tool_mode = "prompt"
endpoint = "completions"
"""


@dataclass
class Program:
    """One process at a time."""

    name: str
    command: Sequence[str]
    folder: Path
    port: int
    is_ready: Callable[["Program"], bool]
    environ: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    async def start(self) -> None:
        """Starts it, and again if it ends, until it is ready: PostgreSQL waits for the end of its own children.

        Raises: TimeoutError: it was not ready in time.
        """
        async with asyncio.timeout(READY_S):
            while not (self.process and self.process.poll() is None and await asyncio.to_thread(self.is_ready, self)):
                if self.process is None or self.process.poll() is not None:
                    self._start()
                await asyncio.sleep(_POLL_S)

    def _start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder), **self.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self.user,
            )

    def signal(self, number: int) -> None:
        """Sends a signal."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    async def kill(self) -> None:
        """Ends it by SIGKILL, also if it was stopped by SIGSTOP."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)


@dataclass
class Deployment:
    """The processes, nginx excluded, and what clients need."""

    url: str
    """The address of nginx."""
    key: str
    limited_key: str
    """An API key with limits and a budget."""
    gateways: list[Program]
    llamas: list[Program]
    redis: Program
    postgresql: Program

    @property
    def programs(self) -> list[Program]:
        """All but nginx, those first that others connect to."""
        return [self.redis, self.postgresql, *self.llamas, *self.gateways]


@contextlib.asynccontextmanager
async def deployment(folder: Path, slots: int, *, shared: bool = True) -> AsyncIterator[Deployment]:
    """Starts all processes, and ends them at the end of the block.

    Args:
        folder: for their files; PostgreSQL's user can enter it.
        slots: streams that each llama-server writes at the same time.
        shared: whether the gateways share state.
    """
    key, limited = secrets.token_hex(16), secrets.token_hex(16)
    programs = [_redis(folder), _postgresql(folder)]
    llamas = [_llama(name, folder, slots) for name in LLAMAS]
    settings = SETTINGS.format(key=key, limited=limited, postgresql=programs[1].port)
    if shared:
        settings += STATE.format(redis=programs[0].port, postgresql=programs[1].port)
    settings += "".join(UPSTREAM.format(name=each.name, port=each.port) for each in llamas)
    (folder / "config.toml").write_text(settings)
    gateways = [_gateway(f"gateway{number + 1}", folder) for number in range(GATEWAYS)]
    found = Deployment("", key, limited, gateways, llamas, programs[0], programs[1])
    front = _own_folder(folder, "nginx")
    try:
        await asyncio.gather(*(each.start() for each in [*programs, *llamas]))
        await asyncio.gather(*(each.start() for each in gateways))
        with nginx.running(front, free_port(), [each.port for each in gateways]) as found.url:
            yield found
    finally:
        for each in reversed(found.programs):
            await each.kill()


def _own_folder(folder: Path, name: str) -> Path:
    own = folder / name
    own.mkdir()
    return own


def _redis(folder: Path) -> Program:
    own, port = _own_folder(folder, "redis"), free_port()

    def answers(program: Program) -> bool:
        with contextlib.suppress(redis.RedisError), redis.Redis(port=program.port, socket_timeout=1) as client:
            return bool(client.ping())
        return False

    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", str(own)]
    return Program("redis", [_program("redis-server"), *options], own, port, answers)


def _postgresql(folder: Path) -> Program:
    own, port = _own_folder(folder, "postgresql"), free_port()
    found = Path(_program("initdb")).resolve().parent
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # it refuses to run as root
        user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        os.chown(own, _NOBODY, _NOBODY)
        folder.chmod(0o711)
    init = [str(found / "initdb"), "-D", str(own / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    environ = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    subprocess.run(init, check=True, capture_output=True, cwd=own, env=environ, **user)

    def answers(program: Program) -> bool:
        where = {"host": "127.0.0.1", "port": program.port, "user": "postgres", "connect_timeout": 1}
        with contextlib.suppress(psycopg.Error):
            psycopg.connect(**where).close()  # type: ignore[arg-type]
            return True
        return False

    options = ["-p", str(port), "-k", str(own), "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]
    command = [str(found / "postgres"), "-D", str(own / "data"), *options]
    return Program("postgresql", command, own, port, answers, user=user)


def _llama(name: str, folder: Path, slots: int) -> Program:
    own, port = _own_folder(folder, name), free_port()
    model = weights.find_weights("smollm2-135m")
    size = ["--parallel", str(slots), "--ctx-size", str(slots * SLOT_TOKENS), "--threads", "1"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    command = [_program("llama-server-vulkan", "llama-server"), "--model", str(model), "--alias", "smollm2"]
    return Program(name, [*command, *size, *where], own, port, _is_healthy)


def _gateway(name: str, folder: Path) -> Program:
    own, port = _own_folder(folder, name), free_port()
    command = [sys.executable, "-m", "dragoman", "serve", "--config", str(folder / "config.toml"), "--port", str(port)]
    return Program(name, [*command, "--log-format", "json"], own, port, _is_healthy, {"DRAGOMAN_HOME": str(own)})


def _is_healthy(program: Program) -> bool:
    """Whether the program answers at /health, as gateways and llama-server do."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", program.port), timeout=1) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return connection.recv(64).startswith(b"HTTP/1.1 200")
    return False


def _program(*names: str) -> str:
    """Returns the path of the first of these programs that is found.

    Raises: RuntimeError: No such program is installed.
    """
    debian = sorted(str(each) for each in Path("/usr/lib/postgresql").glob("*/bin"))
    path = ":".join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", *debian])
    if found := next(filter(None, (shutil.which(name, path=path) for name in names)), None):
        return found
    raise RuntimeError(f"expected the program {names[0]}, found none; install it")
