"""A user's home with a configuration file of each agent, which points to another server and must not change."""

import hashlib
import json
from pathlib import Path
from typing import Final

ELSEWHERE: Final = "http://127.0.0.1:9"
"""The server in the user's own settings; an agent that uses them gets no response."""
OWN_MODEL: Final = "users-own-model"

_CLAUDE: Final = {
    "env": {
        "ANTHROPIC_BASE_URL": ELSEWHERE,
        "ANTHROPIC_AUTH_TOKEN": "sk-own",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": OWN_MODEL,
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1234",
    },
    "apiKeyHelper": "/bin/echo sk-helped",
    "model": OWN_MODEL,
    "permissions": {"allow": ["Read"]},
}
_CODEX: Final = f"""\
# my own
model = "{OWN_MODEL}"
model_provider = "own"
model_context_window = 999999
approval_policy = "never"

[model_providers.own]
name = "own"
base_url = "{ELSEWHERE}/v1"
env_key = "OWN_KEY"
"""
_OPENCODE: Final = f"""\
{{
  "$schema": "https://opencode.ai/config.json", // which OpenCode adds to a file that has none
  "model": "own/{OWN_MODEL}",
  "enabled_providers": ["own"],
  "agent": {{"build": {{"model": "own/{OWN_MODEL}"}}}},
  "provider": {{
    "own": {{
      "npm": "@ai-sdk/openai-compatible",
      "options": {{"baseURL": "{ELSEWHERE}/v1"}},
      "models": {{"{OWN_MODEL}": {{}}}},
    }},
  }},
  "permission": {{"*": "allow"}},
}}
"""
_HERMES: Final = f"""\
# my own
model:
  default: {OWN_MODEL}
  provider: custom:own
  base_url: {ELSEWHERE}/v1
  api_key: sk-own
custom_providers:
  - name: own
    base_url: {ELSEWHERE}/v1
    api_key: sk-own
security:
  tirith_enabled: false
"""
_OPENCLAW: Final = f"""\
{{
  // my own
  models: {{
    providers: {{
      own: {{
        baseUrl: "{ELSEWHERE}/v1", apiKey: "sk-own", api: "openai-completions",
        models: [{{ id: "{OWN_MODEL}", name: "own", contextWindow: 200000, maxTokens: 8192 }}],
      }},
    }},
  }},
  agents: {{ defaults: {{ model: {{ primary: "own/{OWN_MODEL}" }} }} }},
}}
"""
_FILES: Final = {
    ".claude/settings.json": json.dumps(_CLAUDE, indent=2),
    ".claude/CLAUDE.md": "Be brief.\n",
    ".codex/config.toml": _CODEX,
    ".codex/auth.json": json.dumps({"OPENAI_API_KEY": "sk-own"}),
    ".config/opencode/opencode.jsonc": _OPENCODE,
    ".hermes/config.yaml": _HERMES,
    ".hermes/.env": "OPENAI_API_KEY=sk-own\n",
    ".hermes/SOUL.md": "You are brief.\n",
    ".openclaw/openclaw.json": _OPENCLAW,
}


def furnish(home: Path) -> dict[str, str]:
    """Creates the files, and returns a digest of each."""
    for name, text in _FILES.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return digests(home)


def digests(home: Path) -> dict[str, str]:
    """Returns a digest of each created file."""
    return {name: hashlib.sha256((home / name).read_bytes()).hexdigest() for name in _FILES}
