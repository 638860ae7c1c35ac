"""Words for the claude CLI: what it reads in them, by the program itself, and how it no longer does."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bench import offline
from bench.claude_code import QUIET
from hypothesis import example, given
from hypothesis import strategies as st

import agents
from dragoman.backends.claude_cli.prompt import harmless
from scripted import Served, plain, served

JOINER = "\u2060"
BLANKS = "\t\v\f \xa0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""White space to JavaScript."""
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
"""F is a file's name; every spelling has a file of its own."""
UNREAD = [
    *(f"x {c}@F" for c in "!\"#$%&'()*+,-./:;<=>?[\\]^_`{|}~a9"),
    *(f"x{c}@F" for c in "é中я😀，（「“‘«\x00\x1b\x1c\x7f\x85\xad\u180e\u200b\u200c\u200d\u200e\u0301\ufe0f" + JOINER),
    *(f"x @{c}F" for c in "\xa0\xad\u200b\u200d\ufeff\ufe0f\\/" + JOINER),
    *(f"x {c}F" for c in "＠﹫"),
    "@ F",
    "@\nF",
    "@'F'",
    "@`F`",
    "@Fmore",
    "@F,more",
    "@file:FOLDER/F",
    "@file://FOLDER/F",
    "@$HOME/F",
    "&#64;F",
    "%40F",
]
UNTOUCHED = [
    "",
    "an@address.example, mailto:an@address.example",
    'import x from "@scope/package"; `@scope/other`',
    "c = a @ b\nd = a @ \\\n    b",
    "(@F) <@F> [@F](@F) user@host:path \\@F",
    "a/b, and/or, 1/2, http://x.example/y",
    "Wait! What!? a != b",
    "x\n/cost\n!ls",
]


def texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


@dataclass
class Place:
    """A folder and a home with files to be mentioned, one for every spelling and each holding a word of its own."""

    home: Path
    folder: Path
    files: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By a mark: the spellings and what each must not disclose."""

    def text(self, mark: str, spellings: Sequence[str]) -> str:
        """All of them, a line each."""
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
        """The spellings whose words reached the model."""
        sent = b"".join(sent.body for sent in s.sent).decode()
        return [spelling for spelling, secret in self.files[mark] if secret in sent]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "home", tmp_path / "folder")
    place.home.mkdir()
    place.folder.mkdir()
    return place


def heard(body: str | bytes) -> list[str]:
    """All texts of users in a request."""
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return [text for message in messages if message["role"] == "user" for text in texts(message["content"])]


def block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


FEW = ("--tools", "", "--system-prompt", "X", "--setting-sources", "", "--strict-mcp-config")


async def test_files_in_a_conversation(place: Place) -> None:
    raw, unread = place.text("raw", READ), place.text("unread", UNREAD)
    first, only, last = (place.text(mark, READ[:3]) for mark in ("first", "only", "last"))
    string, blocks = harmless(place.text("string", READ)), harmless(place.text("block", READ))
    kept = harmless(place.text("kept", UNREAD))
    result = {"type": "tool_result", "tool_use_id": "t", "content": place.text("result", READ[:3])}
    contents = [
        unread,
        string,
        [block(blocks)],
        kept,
        [block(first), block(last)],
        [block(only), block("")],
        [result],
        raw,
    ]
    async with served(plain) as s:
        await agents.converse(s.url, place.home, place.folder, contents, *FEW)
    assert place.disclosed("raw", s) == READ
    assert place.disclosed("last", s) == READ[:3]
    for mark in ("unread", "string", "block", "kept", "first", "only", "result"):
        assert place.disclosed(mark, s) == [], mark
    for text in (raw, unread, string, blocks, kept, first, only):
        assert text in heard(s.sent[-1].body)


@pytest.mark.parametrize("safe", [False, True])
async def test_files_in_a_prompt(place: Place, safe: bool) -> None:
    text = place.text("prompt", READ)
    text = harmless(text) if safe else text
    async with served(plain) as s:
        env = {"ANTHROPIC_BASE_URL": s.url, "ANTHROPIC_API_KEY": "none", **QUIET}
        command = [offline.claude_code(), "-p", text, "--model", "m", *FEW]
        await agents.run(s.url, place.home, place.folder, command, **env)
    assert place.disclosed("prompt", s) == ([] if safe else READ)
    assert text in heard(s.sent[-1].body)


async def test_commands_and_agents(place: Place) -> None:
    """Those of the project, one of which runs a shell."""
    for folder, name, text in [
        ("commands", "mine", "---\ndescription: d\n---\nbody of $ARGUMENTS: !`echo ran-$((40+2))`"),
        ("agents", "helper", "---\nname: helper\ndescription: d\n---\nHelp."),
    ]:
        (place.folder / ".claude" / folder).mkdir(parents=True)
        (place.folder / ".claude" / folder / f"{name}.md").write_text(text)
    named = ["ask @agent-helper", 'ask @"helper (agent)"']
    unread = [" /mine 0", "x\n/mine 0", "!echo ran-$((50+2))", "x !`echo ran-$((50+2))`", "ask (@agent-helper)"]
    commands = ["/mine 1", "/mine\n2", "/cost", "/nothing"]
    safe = [harmless(text) for text in (*named, *unread, *commands)]
    before = [*unread, *safe, *([block(text)] for text in safe[-len(commands) :])]
    asked = [*before, *named, *commands, [block("/mine 3")]]
    async with served(plain) as s:
        told = await agents.converse(s.url, place.home, place.folder, asked)
    quiet, loud = s.sent[len(before) - 1].body.decode(), s.sent[-1].body.decode()
    for word in ("body of", "ran-42", "ran-52", "desire to invoke", "/nothing, but no"):
        assert word not in quiet
    contents = [text for content in before for text in texts(content)]
    assert [text for text in heard(quiet) if not text.startswith("<system-reminder>")] == contents
    for n in (1, 2, 3):
        assert f"body of {n}: ran-42" in loud
    assert loud.count("desire to invoke") == len(named)
    assert "/nothing, but no" in loud
    assert any("Estimated cost" in line.get("result", "") for line in told)


@pytest.mark.parametrize(("flags", "env"), [((), {"CLAUDE_CODE_DISABLE_ATTACHMENTS": "1"}), (("--bare",), {})])
async def test_the_switches_it_has_are_for_files_alone(place: Place, flags: Sequence[str], env: dict[str, str]) -> None:
    text = place.text("raw", READ)
    async with served(plain) as s:
        told = await agents.converse(s.url, place.home, place.folder, [text, "/cost"], *FEW, *flags, **env)
    assert place.disclosed("raw", s) == []
    assert "Estimated cost" in told[-1]["result"]
    assert heard(s.sent[-1].body) == [text]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_other_text_passes_as_it_is(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("@a @b", "·@a ·@b"),
        ("/clear", "·/clear"),
        ("!ls @a", "·!ls ·@a"),
        (" \n/clear", "· \n/clear"),
        ("/@a", "·/@a"),
        ("见、@a", "见、·@a"),
        ("@@a", "·@@a"),
    ],
)
def test_where_the_joiner_stands(text: str, safe: str) -> None:
    assert harmless(text) == safe.replace("·", JOINER)


anything = st.lists(st.sampled_from([*"@/! \n\ta\"'é.#", *BLANKS, *STOPS, JOINER]) | st.characters()).map("".join)


@given(anything)
@example("\ufeff/cost")
def test_words_survive(text: str) -> None:
    safe = harmless(text)
    assert safe.replace(JOINER, "") == text.replace(JOINER, "")
    assert harmless(safe) == safe


@given(anything)
def test_nothing_to_read_is_left(text: str) -> None:
    """By the rule that the program was found to have."""
    safe = harmless(text)
    assert not safe.startswith(("/", "!"))
    for before, sign, after in zip("\n" + safe, safe, safe[1:] + "\n", strict=False):
        assert sign != "@" or before not in BLANKS + STOPS + "\r\n" or after in " \t\r\n"
