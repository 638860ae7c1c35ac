"""Prompt text for the Claude CLI: what the real program interprets in it, and how escaping prevents that."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dragoman.backends.claude_cli.prompt_escape import append_command_guard
from support import agents
from support.scripted_backend import Served, plain, served

JOINER = "\u2060"
BLANKS = "\t\v\f \xa0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""White space in JavaScript."""
STOPS = "、。！？"
READ = [
    "@F",
    "look at @F now",
    "\r\n@F\r\n",
    *(f"x{c}@F" for c in BLANKS + STOPS),
    *(f"x @F{c}" for c in "!\"$%&'()*+,-./:;<=>?@[]^`{|}~" + STOPS + JOINER),
    "@./F",
    "@../folder/F",
    "@~/F",
    "@~/../folder/F",
    "@FOLDER//F",
    "@FOLDER/F",
    "@.//F",
    '@"F"',
    '@"FOLDER/F"',
    '@"two words F"',
    "@F#L1",
    "@F#L1-2",
    '@"F"#L1-2',
    "@F# L1",
    "@in-F",
    "@in-F/",
    "@one.txt @F",
    "a@b.c @F",
    "```\n@F\n```",
    "> @F",
    "- @F",
    "| @F |",
]
"""File mentions that the CLI expands; F is a file name, a different file for every spelling."""


def texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


@dataclass
class Place:
    """A folder and a home with one file for every spelling, each with its own secret word."""

    home: Path
    folder: Path
    files: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By mark: the spellings, and the secret of each."""

    def text(self, mark: str, spellings: Sequence[str]) -> str:
        """Creates the files; returns all spellings, one per line."""
        spelled = []
        self.files[mark] = []
        for index, spelling in enumerate(spellings):
            name, secret = f"{mark}{index}.txt", f"secret-{mark}-{index}."
            (self.folder / name).write_text(secret)
            (self.folder / f"two words {name}").write_text(secret)
            (self.home / name).write_text(secret)
            (self.folder / f"in-{name}").mkdir()
            (self.folder / f"in-{name}" / secret).touch()
            spelled.append(re.sub("F(?!OLDER)", name, spelling).replace("FOLDER", str(self.folder)))
            self.files[mark].append((spelling, secret))
        return "\n".join(spelled)

    def disclosed(self, mark: str, s: Served) -> list[str]:
        """The spellings whose secrets reached the model."""
        sent = b"".join(sent.body for sent in s.sent).decode()
        return [spelling for spelling, secret in self.files[mark] if secret in sent]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "home", tmp_path / "folder")
    place.home.mkdir()
    place.folder.mkdir()
    return place


def heard(body: str | bytes) -> list[str]:
    """All user texts in a request."""
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return [text for message in messages if message["role"] == "user" for text in texts(message["content"])]


def block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


ISOLATION_FLAGS = ("--tools", "", "--system-prompt", "X", "--setting-sources", "", "--strict-mcp-config")


async def test_file_mentions_are_not_expanded_when_escaped(place: Place) -> None:
    raw, string = place.text("raw", READ), place.text("string", READ)
    first, second = place.text("first", READ), place.text("second", READ)
    contents = [
        append_command_guard([block(first)]),
        append_command_guard([block(second), block(second)]),
        [block(raw)],
        string,
    ]
    async with served(plain) as s:
        await agents.converse(s.url, place.home, place.folder, contents, *ISOLATION_FLAGS)
    for mark in ("raw", "string"):
        assert place.disclosed(mark, s) == READ
    for mark in ("first", "second"):
        assert place.disclosed(mark, s) == [], mark
    assert heard(s.sent[1].body) == [first, second, second]


def project(folder: Path) -> None:
    """Adds a command, which runs a shell, and an agent to the folder."""
    for kind, name, text in [
        ("commands", "mine", "---\ndescription: d\n---\nbody of $ARGUMENTS: !`echo ran-$((40+2))`"),
        ("agents", "helper", "---\nname: helper\ndescription: d\n---\nHelp."),
    ]:
        (folder / ".claude" / kind).mkdir(parents=True)
        (folder / ".claude" / kind / f"{name}.md").write_text(text)


AGENTS = ["ask @agent-helper", 'ask @"helper (agent)"']
COMMANDS = ["/mine 1", "/mine\n2", "/cost", "/nothing", "/clear", "/review b"]
SHELLS = ["!echo ran-$((50+2))", "x !`echo ran-$((50+2))`", "# remember"]
DONE = ("body of", "ran-42", "ran-52", "desire to invoke", "/nothing, but no", "Estimated cost", "code reviewer")
"""Text that shows that one of them was run."""


async def test_commands_and_agents_are_not_run_when_escaped(place: Place) -> None:
    project(place.folder)
    asked = [*AGENTS, *COMMANDS, *SHELLS]
    kept = [append_command_guard([block(text)]) for text in asked]
    read: list[object] = [*AGENTS, "/mine 1", "/cost", "/nothing", [block("/mine 3")]]
    async with served(plain) as s:
        told = await agents.converse(s.url, place.home, place.folder, [*kept, *read])
    quiet, loud = s.sent[len(kept) - 1].body.decode(), s.sent[-1].body.decode()
    assert [word for word in DONE if word in quiet] == []
    assert [text for text in heard(quiet) if not text.startswith("<system-reminder>")] == asked
    for done in ("body of 1: ran-42", "body of 3: ran-42", "/nothing, but no"):
        assert done in loud
    assert loud.count("desire to invoke") == len(AGENTS)
    assert any("Estimated cost" in line.get("result", "") for line in told)


@pytest.mark.parametrize(("flags", "env"), [((), {"CLAUDE_CODE_DISABLE_ATTACHMENTS": "1"}), (("--bare",), {})])
async def test_cli_switches_disable_file_mentions(place: Place, flags: Sequence[str], env: dict[str, str]) -> None:
    """The second line of defence; built-in commands still run."""
    text = place.text("raw", READ)
    async with served(plain) as s:
        told = await agents.converse(s.url, place.home, place.folder, [text, "/cost"], *ISOLATION_FLAGS, *flags, **env)
    assert place.disclosed("raw", s) == []
    assert "Estimated cost" in told[-1]["result"]
    assert heard(s.sent[-1].body) == [text]


async def test_cli_switch_disables_slash_commands(place: Place) -> None:
    project(place.folder)
    asked = ["/mine 1", "/review b", "hi"]
    async with served(plain) as s:
        await agents.converse(s.url, place.home, place.folder, asked, "--disable-slash-commands")
    assert [word for word in DONE if word in s.sent[-1].body.decode()] == []
