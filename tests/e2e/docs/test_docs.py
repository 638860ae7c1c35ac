"""The README and docs/: links are valid, and the examples print the documented output (`doc_examples`)."""

import contextlib
import functools
import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from bench import offline

import dragoman.gateway.gateway
from dragoman import cli
from dragoman import config as settings
from dragoman.backends.http.backend import HttpBackend
from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request
from dragoman.records import database
from support import doc_examples, ran_pairs
from support.agents import words
from support.doc_examples import BLOCKS, GATEWAY, PAGES, ROOT, Block, Command, matches
from support.gateway import DEADLINE_S, Gateway, environment
from support.scripted_backend import Scripted, in_thread

SMALL: Final = "smollm2-135m"
"""Examples with this model run on the real one; every other model is scripted."""
PLAYED: Final = ("qwen2.5-coder-1.5b", "claude-code-cli/sonnet")
SHOWN: Final = ("formats", "parse", "tokens")
"""Commands with the same output on every machine; of other commands only the arguments are checked."""


# Links

SITE: Final = {ROOT / "docs", ROOT / "examples"}


def anchors(page: Path) -> set[str]:
    """The anchors of a page, by the rules of GitHub and the documentation site."""
    text = re.sub(r"^( {0,3})```.*?^\1```$", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_valid_targets(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", page.read_text())
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if urlsplit(link).scheme:
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert page.parent == ROOT or SITE & set(target.resolve().parents), f"{link} leads out of the site"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_every_page_is_in_the_navigation() -> None:
    def pages(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            assert isinstance(entry, dict | list)
            for each in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(each)

    named = list(pages(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert sorted(named) == sorted(str(p.relative_to(ROOT / "docs")) for p in PAGES if p.is_relative_to(ROOT / "docs"))


# Examples that are not run

LEFT: Final = [f"{block}: {block.not_run}" for block in BLOCKS if block.not_run]


def test_skipped_examples_are_few() -> None:
    """`pytest -s -k skipped_examples` prints them."""
    print("not run:", *LEFT, sep="\n")
    assert len(LEFT) <= 8


# Python and JavaScript


async def play(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """A scripted model that calls `get_weather`, then reports the result: as text, or by calling `final_answer`."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, v.ToolResult)]
    told = [words(result) for result in results] or [
        found[0] for message in request.messages for part in message.parts if (found := seen(part))
    ]
    offered = {tool.name for tool in request.tools}
    yield Start("", "", 0)
    if not told and "get_weather" in offered:
        yield ToolCallStart(0, "call_0", "get_weather")
        yield ToolCallDelta(0, '{"city": "Paris"}')
        yield ToolCallEnd(0)
    elif "final_answer" in offered:
        yield ToolCallStart(0, "call_1", "final_answer")
        yield ToolCallDelta(0, json.dumps({"answer": f"It is {told[-1]}."}))
        yield ToolCallEnd(0)
    else:
        yield TextDelta(f"It is {told[-1] if told else 'fine'}.")
    yield Finish("stop")


def seen(part: v.Part) -> list[str]:
    """A tool result that a client sends as user text."""
    return re.findall(r"sunny in \w+", part.text) if isinstance(part, v.Text) else []


@pytest.fixture(scope="module")
def played() -> Iterator[str]:
    """The URL of a gateway with scripted models."""
    with in_thread(play, names=PLAYED) as url:
        yield url


def output(command: list[str | Path], block: Block, url: str, home: Path, cwd: Path | None = None) -> str:
    """Runs the example against the gateway, and returns its output."""
    code = block.code.replace(GATEWAY, url)
    (home / "example.py").write_text(code)
    done = subprocess.run(
        command, input=code, env=environment(home), cwd=cwd or home, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def marked(found: list[Block]) -> list[Any]:
    """Adds to each block the `ran` mark of the package in its heading."""
    packages = {
        block: [pytest.mark.ran(block.heading, "a script")] for block in found if block.heading in ran_pairs.FRONT
    }
    return [pytest.param(block, marks=packages.get(block, []), id=str(block)) for block in found]


PYTHON: Final = [block for block in doc_examples.of("python") if block.page != "README.md"]
ASKING: Final = [block for block in PYTHON if GATEWAY in block.code]


@pytest.mark.parametrize("block", [block for block in PYTHON if block not in ASKING], ids=str)
def test_python_example_prints_documented_output(block: Block) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(block.code, str(block), "exec"), {})
    assert [line.rstrip() for line in out.getvalue().splitlines()] == block.printed.splitlines()


@pytest.mark.parametrize("block", marked([block for block in ASKING if SMALL not in block.code]))
def test_python_client_example_prints_documented_output(block: Block, played: str, tmp_path: Path) -> None:
    assert output([sys.executable, "example.py"], block, played, tmp_path).splitlines() == block.printed.splitlines()


@pytest.mark.model
@pytest.mark.parametrize("block", [block for block in ASKING if SMALL in block.code], ids=str)
def test_python_client_example_works_on_embedded_model(block: Block, gateway: Gateway, tmp_path: Path) -> None:
    assert matches(block.printed, output([sys.executable, "example.py"], block, gateway.url, tmp_path))


@pytest.mark.parametrize("block", marked(doc_examples.of("js")))
def test_javascript_client_example_prints_documented_output(block: Block, played: str, tmp_path: Path) -> None:
    command = [offline.node(), "--input-type=module", "-"]
    printed = output(command, block, played, tmp_path, cwd=offline.CLIENTS.parent)
    assert printed.splitlines() == block.printed.splitlines()


# Files

LOOKED_AT: Final = {"console", "js", "json", "python", "sh", "sql", "toml", "yaml"}
"""Languages tested by this file or by tests/e2e/docs/test_quick_start.py."""


def test_every_example_language_is_tested() -> None:
    assert {block.language for block in BLOCKS} - {"text"} <= LOOKED_AT
    assert all(block.title for block in doc_examples.of("yaml"))


@pytest.mark.parametrize("block", doc_examples.of("sh"), ids=str)
def test_shell_example_runs(block: Block, tmp_path: Path) -> None:
    subprocess.run(["/bin/sh", "-e"], input=block.code, env=environment(tmp_path), cwd=tmp_path, text=True, check=True)


@pytest.mark.parametrize("block", doc_examples.of("sql"), ids=str)
def test_query_runs_on_records(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    database.open_for_writing(database.locate(f"sqlite:///{path}")).dispose()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute(block.code).fetchall() == []


@pytest.mark.parametrize("block", doc_examples.of("json"), ids=str)
def test_json_example_is_valid(block: Block) -> None:
    assert json.loads(block.code)


@pytest.mark.parametrize("block", doc_examples.of("toml"), ids=str)
def test_toml_example_is_valid_config(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are valid for `serve`, if the variables with keys are set."""
    read = tomllib.loads(block.code)
    if block.title:
        return  # a config file of another program
    (file := tmp_path / "config.toml").write_text(block.code)
    config, _ = settings.load(file, {}, {})
    for name in re.findall(r'(?:api_key_env|Authorization) = "(\w+)"', block.code):
        monkeypatch.setenv(name, "none")
    if config.upstreams and all(server.models for server in config.upstreams.values()):
        gateway = dragoman.gateway.gateway.Gateway(
            [HttpBackend(name, server, os.environ) for name, server in config.upstreams.items()], config.model_aliases
        )
        assert all(gateway.routes(Request(model=alias, messages=())) for alias in config.model_aliases)
    if "upstreams" in read:
        assert cli.main(["serve", "--print-config", "--config", str(file)]) == 0
        assert "config.toml" in capsys.readouterr().out


# Commands


parser: Final = functools.cache(cli.parser)


def parsed(words: list[str]) -> None:
    """Asserts that the command line accepts these arguments."""
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        try:
            parser().parse_args(words)
            status: object = 0
        except SystemExit as end:  # 0 for --help
            status = end.code
    assert not status, said.getvalue()


COMMANDS: Final = doc_examples.commands()
OURS: Final = [command for command in COMMANDS if command.ours]


@pytest.mark.parametrize("command", OURS, ids=str)
def test_documented_command_is_valid(command: Command, tmp_path: Path) -> None:
    words = command.ours
    parsed(words)
    if words[0] == "serve":
        parsed([*words, "--print-config"])
    if words[0] in SHOWN or "error: " in command.printed:
        (program := tmp_path / "dragoman").write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dragoman "$@"\n'
        )
        program.chmod(0o755)
        env = environment(tmp_path) | {"PATH": f"{tmp_path}:{os.defpath}"}
        done = subprocess.run(
            ["/bin/sh", "-c", command.typed], env=env, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert matches(command.printed, done.stdout + done.stderr), done.stdout + done.stderr


INLINE: Final = sorted({(p, c) for p in PAGES for c in re.findall(r"`dragoman ([a-z][^`…]*)`", p.read_text())})


@pytest.mark.parametrize(("page", "typed"), INLINE, ids=[f"{p.name} {c}" for p, c in INLINE])
def test_inline_command_is_valid(page: Path, typed: str) -> None:
    assert page.exists()
    parsed(shlex.split(typed))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.words[:1] == ["curl"] and c.printed], ids=str)
def test_curl_example_returns_documented_response(command: Command, gateway: Gateway) -> None:
    words = command.words
    body = words[words.index("-d") + 1]
    (url,) = (word for word in words[1:] if "8484" in word)
    answer = httpx2.post(f"{gateway.url}/{url.partition('8484/')[2]}", content=body.encode(), trust_env=False)
    assert matches(command.printed, answer.text), answer.text


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in OURS], ids=str)
def test_command_for_repository_refers_to_existing_targets(command: Command) -> None:
    """Other commands: their make targets, files and extras exist."""
    match command.words:
        case ["make", target, *_] if re.fullmatch("[a-z-]+", target):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
        case ["python", path, *_] if path.endswith(".py"):
            assert (ROOT / path).exists()
        case ["pip", "install", *packages]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            named = {extra for each in packages for extra in re.findall(r"[\w-]+", each.partition("[")[2])}
            assert named <= extras.keys()
