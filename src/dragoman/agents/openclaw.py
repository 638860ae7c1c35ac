"""OpenClaw: a configuration of this run that includes the user's own and goes over it; its state stays where it is.

A gateway of OpenClaw's that runs already has read the user's configuration: what is asked of that one is not ours.
"""

import json
import os
from pathlib import Path
from typing import Final

from dragoman.agents import Agent, Launch, Wiring

_PATH, _STATE, _ROOTS = "OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR", "OPENCLAW_INCLUDE_ROOTS"
_CONFIG: Final = "openclaw.json"


def launch(wiring: Wiring) -> Launch:
    """Its command as the user has it, and the configuration; the folder of the user's may be read from there."""
    name = f"dragoman/{wiring.model}"
    model: dict[str, object] = {"id": wiring.model, "name": wiring.model, "reasoning": wiring.thinks}
    if wiring.context_tokens:
        model |= {"contextWindow": wiring.context_tokens, "maxTokens": wiring.output_tokens}
    provider = {"baseUrl": f"{wiring.url}/v1", "apiKey": wiring.key, "api": "openai-completions", "models": [model]}
    config: dict[str, object] = {
        "models": {"providers": {"dragoman": provider}},
        "agents": {
            "defaults": {"model": {"primary": name}, "models": {name: {}}, "subagents": {"model": {"primary": name}}}
        },
    }
    environ = {_PATH: str(wiring.folder / _CONFIG), **wiring.unset(OPENCLAW_NO_AUTO_UPDATE="1")}
    own = _own(wiring)
    if wiring.read(own) is not None:
        config = {"$include": str(own), **config}
        roots = [root for root in wiring.environ.get(_ROOTS, "").split(os.pathsep) if root]
        environ[_ROOTS] = os.pathsep.join(dict.fromkeys([*roots, str(own.parent)]))
    return Launch((wiring.program, *wiring.args), environ, {_CONFIG: json.dumps(config, indent=2)})


def _own(wiring: Wiring) -> Path:
    """The user's own configuration, where there is one; an earlier one of ours includes it."""
    named = wiring.environ.get(_PATH)
    if named and wiring.kept and Path(named) == wiring.kept / _CONFIG:
        named = json.loads(wiring.read(Path(named)) or "{}").get("$include")
    state = wiring.environ.get(_STATE)
    own = Path(named) if named else (Path(state) if state else wiring.home / ".openclaw") / _CONFIG
    return own.expanduser().absolute()  # what is included is looked for from the folder of ours


AGENT: Final = Agent(
    title="OpenClaw",
    programs=("openclaw",),
    install="npm install -g openclaw",
    source="https://docs.openclaw.ai/gateway/configuration, https://github.com/openclaw/openclaw/pull/75746 for what "
    "is included (2026-11); tried with 2026.9.6",
    launch=launch,
    tools=("read", "edit", "write", "exec", "process"),
)
