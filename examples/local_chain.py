"""Claude Code on a model of your own, with one command: docs/local.md.

    python examples/local_chain.py http://127.0.0.1:1234/v1
    python examples/local_chain.py http://127.0.0.1:8080/v1 --prompt-trim aggressive --context-window 32768 \\
        --serve "mlx_lm.server --model mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit --port 8080"
    python examples/local_chain.py http://127.0.0.1:8080/v1 -- -p "What is in this folder?"

Starts the model's server where `--serve` says how, Dragoman in front of it, and Claude Code in front of that; ends what
it has started when Claude Code ends, with its exit status. What stands behind `--` is Claude Code's.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LOAD_S = 1800.0
"""Time for a server that is started here to load, or even fetch, its model."""
THERE_S = 15.0
"""Time for one that runs."""


def main() -> int:
    """Claude Code's exit status; 1 where what stands behind it did not come up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    own, _, claudes = " ".join(map(shlex.quote, sys.argv[1:])).partition(" -- ")
    args = _arguments().parse_args(shlex.split(own))
    with contextlib.ExitStack() as started, tempfile.TemporaryDirectory() as folder:
        if args.serve:
            server = started.enter_context(_running(shlex.split(args.serve), Path(folder) / "server"))
            _answering(f"{args.url.rstrip('/')}/models", server, LOAD_S)
        settings, log = Path(folder) / "config.toml", Path(folder) / "gateway"
        settings.write_text("\n".join(["[upstreams.local]", *_settings(args)]))
        command = [
            sys.executable,
            "-m",
            "dragoman",
            "serve",
            "--port",
            "0",
            "--config",
            str(settings),
            "--log-format",
            "text",
        ]
        gateway = started.enter_context(_running(command, log))
        url = _listening(gateway, log)
        models = [model["id"] for model in _answering(f"{url}/v1/models", gateway, THERE_S)["data"]]
        model = args.model or next((id for id in models if "/" not in id), None) or next(iter(models), "")
        sys.stderr.write(f"{model} at {args.url}, through {url}\n")
        claude = [args.claude, "--model", model, *shlex.split(claudes)]
        return subprocess.run(claude, env={**os.environ, **_environment(url, model, args.context_window)}).returncode


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(usage="%(prog)s URL [options] [-- options of Claude Code]", description=__doc__)
    parser.add_argument("url", help="of the model's server, as its clients are told: http://127.0.0.1:1234/v1")
    parser.add_argument("--serve", metavar="COMMAND", help="what starts that server, where it does not run yet")
    parser.add_argument("--model", help="the model (default: the first that the server lists)")
    parser.add_argument("--tool-mode", default="auto", help="native, parse or prompt (docs/servers.md)")
    parser.add_argument("--prompt-trim", default="tools", help="off, tools or aggressive (default: tools)")
    parser.add_argument("--context-window", type=int, default=0, help="tokens of context that the model is run with")
    parser.add_argument("--claude", default="claude", help="where Claude Code is")
    return parser


def _settings(args: argparse.Namespace) -> list[str]:
    said = {
        "url": args.url,
        "tool_mode": args.tool_mode,
        "prompt_trim": args.prompt_trim,
        "context_window": args.context_window,
    }
    said["max_concurrency"] = 1
    return [f"{name} = {json.dumps(value)}" for name, value in said.items()]


def _environment(url: str, model: str, context: int) -> Mapping[str, str]:
    """What Claude Code is told: one model for all its purposes, and when to shorten a conversation."""
    roles = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **dict.fromkeys((*roles, "CLAUDE_CODE_SUBAGENT_MODEL"), model),
        **(_room(context) if context else {}),
    }


def _room(context: int) -> Mapping[str, str]:
    """How much a model that Claude Code does not know takes, which it would believe to be 200,000 tokens or more."""
    output = min(8192, context // 4)
    return {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(context), "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(output)}


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process; it writes to a file, as the screen is Claude Code's, which is shown where that never starts."""
    with log.open("w") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
    try:
        yield process
    except SystemExit:
        sys.stderr.write("\n".join([f"{command[0]} said last:", *log.read_text().splitlines()[-20:], ""]))
        raise
    finally:
        process.terminate()
        process.wait()


def _listening(gateway: subprocess.Popen[bytes], log: Path) -> str:
    """The gateway's URL, once it has told it."""
    while gateway.poll() is None:
        for line in log.read_text().splitlines():
            if " listening on " in line:
                return line.rpartition(" ")[2]
        time.sleep(0.05)
    raise SystemExit("dragoman did not start")


def _answering(url: str, server: subprocess.Popen[bytes], limit_s: float) -> Any:
    """What a server says at this URL, once it is there and has something to list."""
    end = time.monotonic() + limit_s
    while server.poll() is None and time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            said = json.loads(urllib.request.urlopen(url, timeout=5).read())
            if said.get("data"):
                return said
        time.sleep(0.5)
    raise SystemExit(f"no models came up at {url}; is the model's server there? --serve can start it")


if __name__ == "__main__":
    raise SystemExit(main())
