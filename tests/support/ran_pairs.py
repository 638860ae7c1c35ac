"""A pytest plugin that records which real clients ran with which upstreams.

    @pytest.mark.ran("Codex", "claude CLI")
    @pytest.mark.ran({"openai_chat": "openai for Python", …}, {"llama": "llama-server", …})     by the case's parameters

`pytest --ran` writes the passed tests, with the versions of both sides, to tests/data/ran.toml, and keeps the entries
of tests that did not run; `docs/generate.py` builds tables from it. tests/meta/test_ran.py compares the file with the
marks.
"""

import importlib.metadata
import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import pytest
from bench import offline

from support.paths import DATA

RECORD: Final = DATA / "ran.toml"
SERVERS: Final = RECORD.parent / "servers"
_package = importlib.metadata.version
Kind: TypeAlias = Literal["real", "recorded", "scripted"]


def _recorded(name: str) -> str:
    """The server of a recording."""
    head = json.loads((SERVERS / f"{name}.json").read_text())
    return f"{head['server']}, {head['date']}"


def _hermes_agent() -> str:
    """The version in its own environment."""
    found = importlib.metadata.distributions(path=[str(p) for p in offline.AGENTS.parent.glob("lib/*/site-packages")])
    return next((each.version for each in found if each.name == "hermes-agent"), "")


FRONT: Final[Mapping[str, Callable[[], str]]] = {
    "Claude Code": partial(offline.version, "@anthropic-ai/claude-code"),
    "Codex": partial(offline.version, "@openai/codex"),
    "OpenCode": partial(offline.version, "opencode-ai"),
    "Hermes Agent": _hermes_agent,
    "OpenClaw": partial(offline.version, "openclaw"),
    "LangChain": partial(_package, "langchain"),
    "OpenAI Agents SDK": partial(_package, "openai-agents"),
    "Pydantic AI": partial(_package, "pydantic-ai-slim"),
    "smolagents": partial(_package, "smolagents"),
    "openai for Python": partial(_package, "openai"),
    "anthropic for Python": partial(_package, "anthropic"),
    "openai for Node": partial(offline.version, "openai"),
    "@anthropic-ai/sdk": partial(offline.version, "@anthropic-ai/sdk"),
    "Vercel AI SDK": partial(offline.version, "ai"),
}
"""Real clients and SDKs, and a function for the version of each."""


class Behind(NamedTuple):
    """An upstream of Dragoman."""

    kind: Kind
    about: str
    version: Callable[[], str]
    but: str = ""
    """Which part of it is not real, for table headings."""


BEHIND: Final[Mapping[str, Behind]] = {
    "embedded model": Behind("real", "the default embedded model", partial(_package, "xllamacpp")),
    "llama-server": Behind("real", "llama.cpp's own server, as packaged in xllamacpp", partial(_package, "xllamacpp")),
    "mlx_lm.server": Behind("real", "on MLX for CPUs", partial(_package, "mlx-lm")),
    "claude CLI": Behind(
        "real", "the installed program, connected to a scripted model", FRONT["Claude Code"], "scripted"
    ),
    "vLLM": Behind("recorded", "its recorded responses, byte for byte", partial(_recorded, "vllm")),
    "exo": Behind("recorded", "its recorded responses, byte for byte", partial(_recorded, "exo")),
    "Qwen2.5-Coder": Behind("recorded", "recorded texts of the 1.5B model", lambda: "2026-11"),
    "Chat Completions": Behind("scripted", "a server of this API with a scripted model", str),
    "Responses": Behind("scripted", "a server of this API with a scripted model", str),
    "Messages": Behind("scripted", "a server of this API with a scripted model", str),
    "a script": Behind("scripted", "a scripted backend of the gateway", str),
}

APIS: Final = {
    "openai_chat": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic_messages": "Messages",
}
PYTHON: Final = {
    "openai_chat": "openai for Python",
    "openai_responses": "openai for Python",
    "anthropic_messages": "anthropic for Python",
}
"""The vendor's Python SDK by API."""


class Pair(NamedTuple):
    """A client and the upstream with which it ran."""

    front: str
    behind: str


class AccessRecord(NamedTuple):
    """A record of a pair that ran."""

    front_version: str
    behind_version: str
    date: str
    tests: tuple[str, ...]
    """Without their parameters."""


MARKED: Final = pytest.StashKey[dict[str, set[tuple[Pair, str]]]]()
"""By file: the marked pairs and tests, whether they run or not."""


def mark_of(item: pytest.Item) -> Pair | None:
    """The pair of this test, from its mark."""
    mark = item.get_closest_marker("ran")
    if mark is None:
        return None
    params = item.callspec.params if hasattr(item, "callspec") else {}
    pair = Pair(*(_named(said, params.values()) for said in mark.args))
    if pair.front not in FRONT or pair.behind not in BEHIND:
        raise pytest.UsageError(f"{item.nodeid}: {pair} is not of the names in {__file__}")
    return pair


def _named(said: str | Mapping[str, str], params: Iterable[object]) -> str:
    if isinstance(said, str):
        return said
    keys = (getattr(value, "__name__", value) for value in params)
    found = [said[key] for key in keys if isinstance(key, str) and key in said]
    return found[0] if found else repr(said)


def test_of(item: pytest.Item) -> str:
    """The test's name without parameters."""
    return item.nodeid.partition("[")[0]


class Plugin:
    """Records marked and passed tests; registered by conftest.py."""

    def __init__(self, writes: bool) -> None:
        self._writes = writes
        self._outcomes: dict[tuple[Pair, str], set[str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        marked = config.stash.setdefault(MARKED, {})
        for item in items:
            in_file = marked.setdefault(item.nodeid.partition("::")[0], set())
            if pair := mark_of(item):
                in_file.add((pair, test_of(item)))
                item.user_properties.append(("ran", [*pair, test_of(item)]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, said in report.user_properties:
            if name == "ran" and (report.when == "call" or report.outcome != "passed"):
                front, behind, test = cast(list[str], said)
                self._outcomes.setdefault((Pair(front, behind), test), set()).add(report.outcome)

    def pytest_sessionfinish(self) -> None:
        if self._writes and self._outcomes:
            write(merged(read(), self._outcomes))


def merged(
    before: Mapping[Pair, AccessRecord], outcomes: Mapping[tuple[Pair, str], set[str]]
) -> dict[Pair, AccessRecord]:
    """Merges the outcomes of tests that ran with the earlier records of all others."""
    failed = {key for key, seen in outcomes.items() if "failed" in seen}
    passed = {key for key, seen in outcomes.items() if "passed" in seen} - failed
    known = {(pair, test) for pair, record in before.items() for test in record.tests} - failed | passed
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return {
        pair: (
            AccessRecord(FRONT[pair.front](), BEHIND[pair.behind].version(), today, tests)
            if any((pair, test) in passed for test in tests)
            else before[pair]._replace(tests=tests)
        )
        for front in FRONT
        for behind in BEHIND
        if (tests := tuple(sorted(test for of, test in known if of == (front, behind))))
        for pair in [Pair(front, behind)]
    }


@cache
def read() -> dict[Pair, AccessRecord]:
    """Reads the records from the file."""
    if not RECORD.exists():
        return {}
    rows = tomllib.loads(RECORD.read_text()).get("ran", [])
    return {
        Pair(row.pop("front"), row.pop("behind")): AccessRecord(**{**row, "tests": tuple(row["tests"])}) for row in rows
    }


def write(known: Mapping[Pair, AccessRecord]) -> None:
    """Rewrites the file."""
    lines = ["# Written by pytest --ran: what passed (tests/support/ran_pairs.py). Then run: make docs"]
    for pair, record in known.items():
        fields = {**pair._asdict(), **record._asdict()}
        lines += [
            "",
            "[[ran]]",
            *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()),
        ]
    RECORD.write_text("\n".join(lines) + "\n")
    sys.stderr.write(f"wrote {RECORD}\n")
