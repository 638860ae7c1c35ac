"""Hermes Agent: a folder with values that override the user's, member by member, as an administrator's do.

This mechanism (`HERMES_MANAGED_DIR`) leaves the user's home in place: memories, skills and past conversations stay
there, and nothing is copied. An administrator's folder would be hidden by ours: then the launch is refused.
"""

import json
from pathlib import Path
from typing import Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan
from dragoman.core.errors import ConfigError

_VARIABLE: Final = "HERMES_MANAGED_DIR"
_USUAL: Final = "/etc/hermes"
_CONFIG: Final = "config.yaml"
_FILES: Final = (_CONFIG, ".env")
_MIN_TOKENS: Final = 64_000
"""Minimum size of the context in tokens with which it starts (agent/model_metadata.py)."""


def launch(context: LaunchContext) -> LaunchPlan:
    """Returns its command as the user has it, and the files of the folder.

    Raises: ConfigError: an administrator has such a folder, or the model's context is too small for Hermes.
    """
    if 0 < context.context_window < _MIN_TOKENS:
        raise ConfigError(
            f"Hermes Agent wants a model with {_MIN_TOKENS:,} tokens of context, and {context.model} is run with "
            f"{context.context_window:,}; start its server with more, or take another model"
        )
    managed = Path(context.environ.get(_VARIABLE) or _USUAL)
    if managed == context.permanent_folder:
        managed = Path(_USUAL)
    if policy := next((managed / file for file in _FILES if context.read(managed / file) is not None), None):
        raise ConfigError(
            f"{policy} holds rules of an administrator for Hermes, which those of this run would hide; give Hermes the "
            f"gateway in its own settings instead (docs/run.md)"
        )
    base = f"{context.url}/v1"
    size = {"context_length": context.context_window} if context.context_window else {}
    provider = {"name": "dragoman", "api": base, "api_key": context.key, "transport": "chat_completions", **size}
    own = {"provider": "custom:dragoman", "base_url": base, "api_key": context.key, "api_mode": "chat_completions"}
    config = {
        "model": {"default": context.model, **own, **size},
        "providers": {"dragoman": {**provider, "default_model": context.model}},
        "fallback_providers": [],
        "delegation": dict.fromkeys(("model", "provider", "base_url", "api_key", "api_mode"), ""),
        **({} if context.has_reasoning else {"agent": {"reasoning_effort": "none"}}),
    }
    return LaunchPlan(
        (context.program, *context.args),
        {_VARIABLE: str(context.folder)},
        {_CONFIG: json.dumps(config, indent=2, ensure_ascii=False)},  # YAML too, but for surrogate escapes
    )


AGENT: Final = Agent(
    title="Hermes Agent",
    programs=("hermes",),
    install="pip install hermes-agent",
    source="hermes_cli/managed_scope.py and runtime_provider.py of hermes-agent 0.19.0 (2026-11); tried with it",
    launch=launch,
    tools=("read_file", "patch", "write_file", "terminal", "search_files"),
)
