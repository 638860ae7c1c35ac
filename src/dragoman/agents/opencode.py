"""OpenCode: a configuration in a variable, which it merges over all of the user's files for this run."""

import json
from contextlib import suppress
from typing import Any, Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan, deep_merge, key_names

_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_AGENTS: Final = ("build", "plan", "general", "explore", "title", "summary", "compaction")
"""Its own agents: a model that the user has set for one of them would be requested elsewhere."""


def launch(context: LaunchContext) -> LaunchPlan:
    """Returns its command as the user has it, and the variable."""
    name = f"dragoman/{context.model}"
    model: dict[str, object] = {"name": context.model, "tool_call": True, "reasoning": context.has_reasoning}
    if context.context_window:  # without it, OpenCode would never compact a conversation
        model["limit"] = {"context": context.context_window, "output": context.output_tokens}
    config = {
        "provider": {
            "dragoman": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Dragoman",
                # No timeout: a local model may read a long prompt for more than OpenCode's five minutes.
                "options": {"baseURL": f"{context.url}/v1", "apiKey": context.key, "timeout": False},
                "models": {context.model: model},
            }
        },
        "enabled_providers": ["dragoman"],
        "model": name,
        "small_model": name,
        "agent": {agent: {"model": name} for agent in _AGENTS},
    }
    theirs: Any = {}
    with suppress(ValueError):  # OpenCode would have reported it
        theirs = _user_config(json.loads(context.environ.get(_CONTENT) or "{}"))
    eases = context.unset(OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1")
    return LaunchPlan(
        (context.program, *context.args),
        {_CONTENT: json.dumps(deep_merge(config, theirs)), **eases},
        printed={_CONTENT: json.dumps(deep_merge(config, key_names(theirs)))},
    )


def _user_config(content: Any) -> Any:
    """Returns the content of the user's variable, without what an earlier launch put there."""
    match content:
        case {"provider": {"dragoman": _, **others}}:
            return _without_ours(content | {"provider": others})
        case _:
            return content


def _without_ours(value: Any) -> Any:
    """Returns the value without the provider's name and its model names, wherever they occur."""
    if isinstance(value, dict):
        return {name: _without_ours(each) for name, each in value.items() if not _is_own_provider(each)}
    return value


def _is_own_provider(value: object) -> bool:
    return value == ["dragoman"] or (isinstance(value, str) and value.startswith("dragoman/"))


AGENT: Final = Agent(
    title="OpenCode",
    programs=("opencode",),
    install="npm install -g opencode-ai",
    source="https://opencode.ai/docs/config, https://opencode.ai/docs/providers (2026-11); tried with 1.18.33",
    launch=launch,
    prompt_tokens=7_100,
    tools=("read", "edit", "write", "bash", "glob", "grep"),
)
