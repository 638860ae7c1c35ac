"""The command line and the environment of the Claude CLI: a model and nothing else, without the machine's secrets.

What the real program makes of them is tested in tests/e2e/claude_cli/test_isolation.py.
"""

from itertools import pairwise

import pytest

from dragoman.backends.claude_cli.command import ModelSpec, arguments, control_requests, environment

SPEC = ModelSpec("opus")
QUIET = {
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "DISABLE_AUTO_COMPACT": "1",
    "DISABLE_COMPACT": "1",
    "ENABLE_TOOL_SEARCH": "false",
    "FORCE_PROMPT_CACHING_5M": "1",
}
"""Without these the CLI sends requests of its own, shortens conversations, or hides tools from the model."""


def test_environment_turns_off_the_cli_s_own_requests() -> None:
    assert environment({}, (), SPEC, 2).items() >= QUIET.items()


def test_environment_has_only_needed_and_configured_variables() -> None:
    machine = {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "AWS_SECRET_ACCESS_KEY": "x",
        "DRAGOMAN_SERVER_API_KEYS": "y",
        "MINE": "z",
    }
    found = environment(machine, ("MINE",), SPEC, 2)
    assert {name for name in machine if name in found} == {"PATH", "HOME", "MINE"}


@pytest.mark.parametrize("key", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_simple_mode_which_ignores_the_login_needs_a_key(key: str) -> None:
    assert environment({key: "k"}, (), SPEC, 2)["CLAUDE_CODE_SIMPLE"] == "1"
    assert "CLAUDE_CODE_SIMPLE" not in environment({}, (), SPEC, 2)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ModelSpec("opus", max_tokens=5), {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "5"}),
        (ModelSpec("opus", thinking_tokens=0), {"CLAUDE_CODE_DISABLE_THINKING": "1"}),
        (ModelSpec("opus", thinking_tokens=2000), {"MAX_THINKING_TOKENS": "2000"}),
    ],
)
def test_limits_of_the_model_are_variables(spec: ModelSpec, expected: dict[str, str]) -> None:
    assert environment({}, (), spec, 2).items() >= {**expected, "CLAUDE_CODE_MAX_RETRIES": "2"}.items()
    assert control_requests(spec)[0]["settings"] == {"env": expected}


def test_arguments_disable_tools_settings_and_sessions() -> None:
    flags = arguments(SPEC, tools=False)
    pairs = set(pairwise(flags))
    assert {("--tools", ""), ("--setting-sources", ""), ("--model", "opus")} <= pairs
    assert {"--strict-mcp-config", "--no-session-persistence", "--disable-slash-commands"} <= set(flags)
    assert "--allowedTools" not in flags


def test_only_a_model_that_may_be_reasked_gets_no_budget() -> None:
    assert "--max-budget-usd" in arguments(SPEC, tools=True)
    assert "--max-budget-usd" not in arguments(SPEC._replace(may_reask=True), tools=True)
