"""The output of `dragoman run`: the choice of a model, the launch plan, and environments for shells."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dragoman.agents import LaunchPlan
from dragoman.cli._terminal import printable
from dragoman.cli.run.child_process import interruptible
from dragoman.cli.run.select_model import ModelOption
from dragoman.redaction.redact import Redactor, secret_variables

SHELLS: Final = ("posix", "fish", "powershell", "json")
_DIRECT: Final = ("127.0.0.1", "localhost")
_SECRET: Final = re.compile(r"""((?:key|token|secret|password)(?:=|\\?":\s?\\?"))[^"\\\n]+""", re.IGNORECASE)
"""The value of a variable or JSON key whose name ends so, also in JSON within JSON."""


def ask_for_model(offers: Sequence[ModelOption]) -> ModelOption:
    """Lets the user choose a model at the terminal."""
    for number, offer in enumerate(offers, 1):
        print(printable(f"  {number}  {offer.model}, {offer.title}"), file=sys.stderr)
    while True:
        with interruptible():
            print(f"model [1-{len(offers)}, 1]: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        if (chosen := line.strip() or "1").isdecimal() and 1 <= int(chosen) <= len(offers):
            return offers[int(chosen) - 1]


def proxy_bypass(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that keep requests to this machine from the user's HTTP proxy, if there is one."""
    if not any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in environ):
        return {}
    listed = [entry.strip() for entry in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").split(",")]
    if "*" in listed:
        return {}
    hosts = ",".join(dict.fromkeys([*filter(None, listed), *_DIRECT]))
    return {"NO_PROXY": hosts, "no_proxy": hosts}


def format_launch(launch: LaunchPlan, folder: Path, environ: Mapping[str, str]) -> str:
    """Returns the command, the changed variables, and the files of a launch, without keys.

    The user's own values that are merged into ours are not shown, since any of them may be a secret.
    """
    lines = ["command", f"  {shlex.join(launch.command)}", "environment"]
    for name, value in {**proxy_bypass(environ), **launch.environ}.items():
        lines.append(f"  {name} is unset" if value is None else f"  {name}={launch.printed.get(name, value)}")
    for name, text in launch.files.items():
        lines += [f"file {folder / name}", *(f"  {line}" for line in launch.printed.get(name, text).splitlines())]
    return printable(Redactor(secret_variables(environ)).redact_text(_SECRET.sub(r"\1(not shown)", "\n".join(lines))))


def format_environment(launch: LaunchPlan, shell: str, environ: Mapping[str, str]) -> str:
    """Returns the changed variables as lines for a shell, or as JSON, in which null removes one."""
    changes = {**proxy_bypass(environ), **launch.environ}
    if shell == "json":
        return json.dumps(changes, indent=2)
    return "\n".join(_line(name, value, shell) for name, value in changes.items())


def _line(name: str, value: str | None, shell: str) -> str:
    match shell, value:
        case "fish", None:
            return f"set -e {name}"
        case "fish", str(text):
            return f"set -gx {name} {_quote(text, shell)}"
        case "powershell", None:
            return f"Remove-Item Env:{name} -ErrorAction SilentlyContinue"
        case "powershell", str(text):
            return f"$Env:{name} = {_quote(text, shell)}"
        case _, None:
            return f"unset {name}"
        case _:
            return f"export {name}={_quote(str(value), shell)}"


def quote_command(command: Sequence[str], shell: str) -> str:
    """Returns a command as it is typed in this shell."""
    return " ".join(_quote(word, shell) if shlex.quote(word) != word else word for word in command)


def _quote(text: str, shell: str) -> str:
    """Quotes a text: fish escapes a backslash and a quote with a backslash; PowerShell doubles a quote."""
    match shell:
        case "fish":
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case "powershell":
            return "'" + text.replace("'", "''") + "'"
        case _:
            return shlex.quote(text)
