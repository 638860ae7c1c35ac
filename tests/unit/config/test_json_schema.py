"""The JSON Schema of the settings: it accepts the documented example, and has the values that the code accepts."""

import json
import tomllib
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from dragoman import config, dialects
from dragoman.backends.claude_cli import discovery
from dragoman.backends.http import model_modes, server_facts
from dragoman.cli.serve import run
from dragoman.config.server import CAPTURE_FILTERS
from dragoman.prompting import trim
from support.paths import ROOT

EXAMPLE = ROOT / "docs/configuration.toml"
SCHEMA = config.json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def choices(definition: str, key: str) -> Any:
    return SCHEMA["$defs"][definition]["properties"][key]["enum"]


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_example_of_the_documentation_is_valid() -> None:
    VALIDATOR.validate(tomllib.loads(EXAMPLE.read_text()))
    loaded, _ = config.load(EXAMPLE, {}, {})
    assert loaded.upstreams["cloud"].model_overrides["qwen/*"].tool_mode == "native"


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ({"server": {"port": 70000}}, ["server", "port"]),
        ({"server": {"prot": 1}}, ["server"]),
        ({"upstreams": {"lan": {"api": "openai"}}}, ["upstreams", "lan", "api"]),
        ({"upstreams": {"lan": {}}}, ["upstreams", "lan"]),
        ({"guard": {"buffering": "long"}}, ["guard", "buffering"]),
        ({"model_aliases": {"a": 1}}, ["model_aliases", "a"]),
    ],
)
def test_editor_finds_invalid_setting(table: dict[str, Any], path: list[str]) -> None:
    assert list(next(VALIDATOR.iter_errors(table)).absolute_path) == path


@pytest.mark.parametrize(
    ("definition", "key", "known"),
    [
        ("HttpConfig", "api", dialects.names()),
        ("HttpConfig", "tool_mode", ["auto", *get_args(model_modes.ToolMode)]),
        ("HttpConfig", "endpoint", get_args(model_modes.Endpoint)),
        ("HttpConfig", "prompt_trim", trim.NAMES),
        ("HttpConfig", "compaction", server_facts.COMPACTION_MODES),
        ("EmbeddedConfig", "prompt_trim", trim.NAMES),
        ("ClaudeCliConfig", "tool_mode", ["auto", *get_args(discovery.Mode)]),
        ("CaptureConfig", "filter", CAPTURE_FILTERS),
    ],
)
def test_schema_has_the_values_that_the_code_accepts(definition: str, key: str, known: list[str]) -> None:
    assert sorted(choices(definition, key)) == sorted(known)


def test_serve_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    from dragoman import cli

    assert run(cli.parser().parse_args(["serve", "--print-schema"])) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
