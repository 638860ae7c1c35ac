"""`--help` of every command: description, valid examples and exit status, in at most 100 columns."""

import argparse
import json
import re
import shlex
from collections.abc import Iterator

import pytest

import dragoman
from dragoman import cli
from dragoman.catalog import models, servers

COMMANDS = cli.names()
each = pytest.mark.parametrize("name", COMMANDS)


def command(name: str) -> argparse.ArgumentParser:
    top = cli.parser()
    (commands,) = (a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[name]
    return found


def section(text: str, title: str) -> list[str]:
    """The lines below a title."""
    match = re.search(rf"^{title}:\n((?:[ ].*\n?)+)", text, re.MULTILINE)
    assert match, f"nothing below {title!r} in:\n{text}"
    return match[1].splitlines()


def examples(text: str) -> Iterator[list[str]]:
    """Yields the arguments of each `dragoman` command in the examples, without the trailing remarks."""
    for line in section(text, "examples"):
        for part in re.split(r" {3,}", line.strip())[0].split(" | "):
            words = shlex.split(re.sub(r"""^(eval ")?\$\(|\)"$""", "", part))
            if words[0] == "dragoman":
                yield words[1:]


@each
def test_help_has_description_and_exit_status(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = command(name).format_help()
    about = command(name).description
    assert about
    assert about[0].isupper()
    assert about.endswith(".")
    assert max(map(len, text.splitlines())) <= 100
    assert [line for line in section(text, "exit status") if re.match(r" +0  \S", line)]
    assert [line for line in section(text, "exit status") if re.match(r" +2  \S", line)]


@each
def test_help_examples_are_valid_commands(name: str) -> None:
    found = list(examples(command(name).format_help()))
    assert found
    assert any(words[0] == name for words in found)
    for words in found:
        assert cli.parser().parse_args(words).command == words[0]


@each
def test_every_option_has_help_text(name: str) -> None:
    actions = command(name)._actions
    assert [action.option_strings for action in actions if not action.help] == []


@each
def test_help_explains_settings_if_command_has_config(name: str) -> None:
    text = command(name).format_help()
    assert ("--config" in text) == ("\nsettings:\n" in text)


def test_top_level_help_lists_commands_in_defined_order() -> None:
    text = cli.parser().format_help()
    found = re.findall(r"^    (\w+)(?:  |$)", text, re.MULTILINE)
    assert [name for name in cli._ORDER if name in COMMANDS] == found[: len(cli._ORDER)]
    assert set(found) == set(COMMANDS)
    assert len(list(examples(text))) == 2


def test_probe_help_lists_all_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = " ".join(command("probe").format_help().split())
    assert ", ".join(sorted(provider.name for provider in servers.providers())) in text


@each
def test_help_fits_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in command(name).format_help().splitlines() if len(line) > 80] == []


def test_help_keeps_commands_of_examples_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    at_80 = {name: list(examples(command(name).format_help())) for name in COMMANDS}
    monkeypatch.setenv("COLUMNS", "200")
    assert at_80 == {name: list(examples(command(name).format_help())) for name in COMMANDS}


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("serve qwen2.5-coder-1.5b", "; name a model with --model"),
        ("serve http://127.0.0.1:1234/v1", "; name a server with --upstream"),
        ("ask --prompt hi", "; PROMPT is not an option: dragoman ask PROMPT"),
        ("probe --url=http://h", "; URL is not an option: dragoman probe URL"),
        ("replay", "CAPTURE; `dragoman serve --capture DIR` and `dragoman run --capture DIR` store captures in DIR"),
        ("bundle", "`dragoman serve --capture DIR` and `dragoman run --capture DIR` store captures in DIR"),
        ("completion", "required: SHELL"),
        ("serve --port abc", "expected a number from 0 to 65535, got 'abc'"),
        ("serve --port 65536", "expected a number from 0 to 65535, got '65536'"),
        ("run --debug claude", "expected LEVEL 1 or 2, got 'claude'; put AGENT before this option"),
        ("run --print-env claude", "got 'claude'; put AGENT before this option"),
        ("replay captures --seed x", "expected a whole number, got 'x'"),
        ("probe --timeout x", "expected a number, got 'x'"),
        ("run --agent claude", "; AGENT is not an option: dragoman run AGENT"),
        ("serve --port 1 -p 2", "argument -p/--port: can be given only once"),
        ("serve --upstream a --upstream b", "only once; name several servers in the settings file: [upstreams.NAME]"),
    ],
)
def test_natural_mistake_is_answered_with_what_to_type(
    line: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(line.split())
    assert capsys.readouterr().err.endswith(f"{advice}\n")


def test_option_may_be_given_again_in_the_next_command_line() -> None:
    parser = cli.parser()
    assert [parser.parse_args(["serve", "--port", port]).port for port in ("1", "2")] == [1, 2]


def test_repeatable_option_keeps_all_values() -> None:
    assert cli.parser().parse_args(["ask", "--tool", "a()", "--tool", "b()"]).tool == ["a()", "b()"]


def test_help_fits_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = command("serve").format_help().partition("\n\n")[2].partition("examples:")[0]
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("line", ["run --new claude", "parse --truncate", "serve --print"])
def test_abbreviated_long_options_are_rejected(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parser().parse_args(line.split())
    assert ended.value.code == 2
    assert f"unrecognized arguments: {line.split()[1]}" in capsys.readouterr().err


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out == cli.parser().format_help()


def test_help_command_equals_help_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["help", "serve"])
    assert capsys.readouterr().out == command("serve").format_help()


def test_help_of_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["help", "sreve"])
    assert "did you mean 'serve'?" in capsys.readouterr().err


def test_version_command_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"dragoman {dragoman.__version__}\n"


def test_short_options_equal_long_ones() -> None:
    short = cli.parser().parse_args(["serve", "-m", "x", "-p", "1", "-v"])
    long = cli.parser().parse_args(["serve", "--model", "x", "--port", "1", "--log-level", "debug"])
    assert vars(short) == vars(long)


def test_model_list_as_json_has_all_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pull", "--list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [model.name for model in models.models()]


@pytest.mark.parametrize("line", ["serve --all", "serve --json"])
def test_option_without_the_one_that_it_belongs_to_is_rejected(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    assert " to --" in capsys.readouterr().err
