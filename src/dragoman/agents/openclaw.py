"""OpenClaw: a configuration for this run that includes the user's own and overrides it; its state stays where it is.

An OpenClaw gateway that is already running has read the user's configuration: requests to it do not reach Dragoman.
"""

import json
import os
from pathlib import Path
from typing import Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan

_PATH, _STATE, _ROOTS = "OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR", "OPENCLAW_INCLUDE_ROOTS"
_CONFIG: Final = "openclaw.json"


def launch(context: LaunchContext) -> LaunchPlan:
    """Returns its command as the user has it, and the configuration, which may include files of the user's folder."""
    name = f"dragoman/{context.model}"
    model: dict[str, object] = {"id": context.model, "name": context.model, "reasoning": context.has_reasoning}
    if context.context_window:
        model |= {"contextWindow": context.context_window, "maxTokens": context.output_tokens}
    provider = {"baseUrl": f"{context.url}/v1", "apiKey": context.key, "api": "openai-completions", "models": [model]}
    config: dict[str, object] = {
        "models": {"providers": {"dragoman": provider}},
        "agents": {
            "defaults": {"model": {"primary": name}, "models": {name: {}}, "subagents": {"model": {"primary": name}}}
        },
    }
    environ = {_PATH: str(context.folder / _CONFIG), **context.unset(OPENCLAW_NO_AUTO_UPDATE="1")}
    own = _user_config(context)
    if context.read(own) is not None:
        config = {"$include": str(own), **config}
        roots = [root for root in context.environ.get(_ROOTS, "").split(os.pathsep) if root]
        environ[_ROOTS] = os.pathsep.join(dict.fromkeys([*roots, str(own.parent)]))
    return LaunchPlan((context.program, *context.args), environ, {_CONFIG: json.dumps(config, indent=2)})


def _user_config(context: LaunchContext) -> Path:
    """Returns the user's own configuration, if there is one; a configuration of an earlier launch includes it."""
    named = context.environ.get(_PATH)
    if named and context.permanent_folder and Path(named) == context.permanent_folder / _CONFIG:
        named = json.loads(context.read(Path(named)) or "{}").get("$include")
    state = context.environ.get(_STATE)
    own = Path(named) if named else (Path(state) if state else context.home / ".openclaw") / _CONFIG
    return own.expanduser().absolute()  # relative includes are resolved from our folder


AGENT: Final = Agent(
    title="OpenClaw",
    programs=("openclaw",),
    install="npm install -g openclaw",
    source="https://docs.openclaw.ai/gateway/configuration, https://github.com/openclaw/openclaw/pull/75746 for what "
    "is included (2026-11); tried with 2026.9.6",
    launch=launch,
    tools=("read", "edit", "write", "exec", "process"),
)
