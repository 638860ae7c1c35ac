"""Launch plans of agents from the user's environment, files and arguments; no agent is started."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman import agents
from dragoman.agents import LaunchPlan
from dragoman.core.errors import ConfigError
from support.launch_files import launch

EACH = pytest.mark.parametrize("name", agents.names())


def settings(made: LaunchPlan) -> Any:
    (text,) = made.files.values()
    return json.loads(text)


@EACH
def test_user_arguments_are_last_and_unchanged(name: str) -> None:
    made = launch(name, "exec", "--flag", "two words")
    assert made.command[-3:] == ("exec", "--flag", "two words")


@EACH
def test_agent_has_source_and_install_command(name: str) -> None:
    agent = agents.get(name)
    assert "2026-11" in agent.source
    assert bool(agent.programs) == bool(agent.install)


@EACH
@pytest.mark.parametrize(
    "model", ["${HOME}", "a{env:KEY}", "{file:/etc/passwd}", "two\nlines", "a\0", "\x1b[2J", "\ud83d"]
)
def test_model_name_with_substitution_or_control_characters_is_rejected(name: str, model: str) -> None:
    with pytest.raises(ConfigError, match=r"under \[model_aliases\]") as told:
        launch(name, model=model)
    assert repr(model) in str(told.value)


@EACH
@pytest.mark.parametrize("model", ["qwen3:8b", "org/model@q4", "$model {x}", "modèle 🚀"])
def test_model_name_is_passed_unchanged(name: str, model: str) -> None:
    made = launch(name, model=model)
    said = [*made.command, *map(str, made.environ.values()), *made.files.values()]
    assert any(model in text or json.dumps(model)[1:-1] in text for text in said)


def test_non_bmp_characters_are_not_escaped_in_yaml() -> None:
    (text,) = launch("hermes", model="🚀").files.values()
    assert '"default": "🚀"' in text


def test_codex_model_name_is_valid_toml() -> None:
    made = launch("codex", model='🚀 "quoted" \\ è')
    read = tomllib.loads("\n".join(word for word in made.command[1:] if word != "-c"))
    assert read["model"] == read["review_model"] == '🚀 "quoted" \\ è'


def test_claude_code_user_settings_take_precedence() -> None:
    own = json.dumps({"model": "theirs", "env": {"ANTHROPIC_MODEL": "theirs"}, "hooks": {}})
    for given in (("--settings", own), (f"--settings={own}",), ("--settings", "/own.json")):
        made = launch("claude", *given, "-p", "hi", files={"/own.json": own})
        assert made.command == ("/bin/agent", "--settings", "/private/settings.json", "-p", "hi")
        assert (settings(made)["model"], settings(made)["hooks"]) == ("theirs", {})
        assert settings(made)["env"]["ANTHROPIC_MODEL"] == "theirs"
        assert settings(made)["env"]["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"


def test_unreadable_claude_code_settings_are_passed_unchanged() -> None:
    made = launch("claude", "--settings", "/nowhere.json")
    assert made.command[-2:] == ("--settings", "/nowhere.json")


@pytest.mark.parametrize(
    ("args", "environ", "files", "mode"),
    [
        ((), {}, {}, "default"),
        ((), {}, {"/home/ada/.claude/settings.json": "{}"}, "default"),
        ((), {}, {"/home/ada/.claude/settings.json": "not JSON"}, "default"),
        ((), {}, {"/home/ada/.claude/settings.json": '{"permissions": {"defaultMode": "plan"}}'}, None),
        ((), {}, {".claude/settings.json": '{"permissions": {"defaultMode": "auto"}}'}, None),
        ((), {}, {".claude/settings.local.json": '{"permissions": {"defaultMode": "acceptEdits"}}'}, None),
        ((), {"CLAUDE_CONFIG_DIR": "/c"}, {"/c/settings.json": '{"permissions": {"defaultMode": "plan"}}'}, None),
        (("--permission-mode", "plan"), {}, {}, None),
        (("--permission-mode=plan",), {}, {}, None),
        (("--dangerously-skip-permissions",), {}, {}, None),
        (("--settings", '{"permissions": {"defaultMode": "plan"}}'), {}, {}, "plan"),
        (("--settings", '{"permissions": {"allow": ["Read"]}}'), {}, {}, "default"),
    ],
)
def test_claude_code_permission_mode_defaults_to_default(
    args: tuple[str, ...], environ: Mapping[str, str], files: Mapping[str, str], mode: str | None
) -> None:
    """Its default mode is "auto", whose safety check needs the vendor's server."""
    made = launch("claude", *args, environ=environ, files=files)
    assert settings(made).get("permissions", {}).get("defaultMode") == mode
    told = [note for note in made.notes if "asks before it edits" in note]
    assert len(told) == (mode == "default")
    assert bool(made.notes) == (mode == "default" or "auto" in str(files))
    assert settings(made).get("permissions", {}).get("allow") == (["Read"] if "allow" in str(args) else None)


def test_claude_code_status_line_shows_progress_unless_user_has_one() -> None:
    own = '{"statusLine": {"type": "command", "command": "theirs"}}'
    file = Path("/private dir/progress")
    made = launch("claude", progress=file)
    assert "'/private dir/progress'" in settings(made)["statusLine"]["command"]
    assert made.environ["CLAUDE_CODE_DISABLE_TERMINAL_TITLE"] == "1"
    assert "statusLine" not in settings(launch("claude", progress=file, files={".claude/settings.json": own}))
    assert settings(launch("claude", "--settings", own, progress=file))["statusLine"]["command"] == "theirs"
    assert "statusLine" not in settings(launch("claude"))


def test_user_environment_overrides_defaults_but_not_connection() -> None:
    own = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "99", "ANTHROPIC_BASE_URL": "elsewhere", "CLAUDE_CODE_USE_BEDROCK": "1"}
    made = launch("claude", environ=own)
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" not in made.environ
    assert made.environ["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert made.environ["CLAUDE_CODE_USE_BEDROCK"] is None
    assert made.environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "131072"
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" not in settings(made)["env"]


def test_small_context_sets_no_auto_compact_window() -> None:
    made = launch("claude", context_window=32768)
    assert made.environ["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "32768"
    assert "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in made.environ


def test_reasoning_is_disabled_for_model_without_reasoning() -> None:
    assert launch("claude", has_reasoning=False).environ["MAX_THINKING_TOKENS"] == "0"
    assert "MAX_THINKING_TOKENS" not in launch("claude").environ
    assert 'model_reasoning_effort="none"' in launch("codex", has_reasoning=False).command


@pytest.mark.parametrize(("has_web_search", "value"), [(True, "live"), (False, "disabled")])
def test_codex_searches_if_gateway_does(has_web_search: bool, value: str) -> None:
    assert f'web_search="{value}"' in launch("codex", has_web_search=has_web_search).command
    assert settings(launch("hermes", has_reasoning=False))["agent"] == {"reasoning_effort": "none"}


@pytest.mark.parametrize("name", ["claude", "codex", "hermes", "openclaw", "opencode"])
def test_unknown_context_window_is_not_passed_to_agent(name: str) -> None:
    made = launch(name, context_window=0, output_tokens=0)
    said = json.dumps([made.command, made.environ, made.files]).lower()
    assert "context_window" not in said
    assert "context_window" not in said
    assert "context_length" not in said
    assert "contextwindow" not in said
    assert '\\"limit\\"' not in said


def test_opencode_config_is_merged_with_users() -> None:
    own = {"OPENCODE_CONFIG_CONTENT": '{"model": "own/x", "provider": {"own": {}}}'}
    content = json.loads(str(launch("opencode", environ=own).environ["OPENCODE_CONFIG_CONTENT"]))
    assert content["model"] == "own/x"
    assert set(content["provider"]) == {"own", "dragoman"}


@EACH
def test_variables_of_earlier_launch_are_not_user_settings(name: str) -> None:
    """The same shell starts the agent again, with another gateway and model, after an earlier `--print-env`."""
    content = json.dumps({"agent": {"own": {"model": "own/x"}}, "provider": {"own": {}}})
    own = {"OPENCODE_CONFIG_CONTENT": content, "OPENCLAW_CONFIG_PATH": "/own/openclaw.json"}
    files, kept = {"/own/openclaw.json": "{}"}, Path("/kept")
    first = launch(
        name, environ=own, files=files, permanent_folder=kept, folder=kept, model="old", url="http://127.0.0.1:2"
    )
    shell = own | {name: value for name, value in first.environ.items() if value is not None}
    files |= {f"/kept/{file}": text for file, text in first.files.items()}
    again, fresh = (launch(name, environ=environ, files=files, permanent_folder=kept) for environ in (shell, own))
    assert (again.command, again.files) == (fresh.command, fresh.files)
    assert shell | again.environ == own | fresh.environ


@pytest.mark.parametrize("environ", [{}, {"HERMES_MANAGED_DIR": "/rules"}])
def test_hermes_administrator_rules_are_not_overridden(environ: Mapping[str, str]) -> None:
    folder = environ.get("HERMES_MANAGED_DIR", "/etc/hermes")
    with pytest.raises(ConfigError, match=rf"{folder}/config.yaml holds rules"):
        launch("hermes", environ=environ, files={f"{folder}/config.yaml": "approvals: {}"})


def test_hermes_rejects_small_context_window() -> None:
    with pytest.raises(ConfigError, match=r"64,000 tokens of context, and m is run with 32,768"):
        launch("hermes", context_window=32768)


@pytest.mark.parametrize(
    ("environ", "own"),
    [
        ({}, "/home/ada/.openclaw/openclaw.json"),
        ({"OPENCLAW_STATE_DIR": "/state"}, "/state/openclaw.json"),
        ({"OPENCLAW_CONFIG_PATH": "conf/my.json"}, f"{Path.cwd()}/conf/my.json"),
        ({"OPENCLAW_STATE_DIR": "~/state"}, f"{Path.home()}/state/openclaw.json"),
        ({"OPENCLAW_CONFIG_PATH": "/other/my.json", "OPENCLAW_INCLUDE_ROOTS": "/more"}, "/other/my.json"),
    ],
)
def test_openclaw_config_includes_user_config(environ: Mapping[str, str], own: str) -> None:
    made = launch("openclaw", environ=environ, files={own: "{}"})
    assert settings(made)["$include"] == own
    assert str(made.environ["OPENCLAW_INCLUDE_ROOTS"]).split(":")[-1] == str(Path(own).parent)
    assert "$include" not in settings(launch("openclaw", environ=environ))
