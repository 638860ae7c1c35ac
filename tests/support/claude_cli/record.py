"""Records input and output of the real CLI for each case.

    PYTHONPATH=tests python -m support.claude_cli.record [CASE…]

rewrites tests/data/claude_cli/CASE.jsonl. A trace is JSON lines. The first describes the recording; each other line is
one message under the name of its source: `us` and `cli` for lines of standard input and output, `stderr` for standard
error, `wire` for a request to the model's API; the last is the `exit` status. Ids are numbers; paths, ports and times
are the same in each recording; the vendor's descriptions are left out.
"""

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench import offline

from support.claude_cli.cases import CASES
from support.claude_cli.session import Case, Run, run
from support.client_recordings import each_string
from support.paths import DATA

TRACES: Final = DATA / "claude_cli"
_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_PROSE: Final = frozenset({"description"})
_SHORT: Final = 40
_TIMES: Final = re.compile(r"_ms$|^timestamp$|^pid$")
_KEPT: Final = "retry_delay_ms"
"""The only time value that a reader of the lines uses."""


def record(name: str, case: Case) -> Path:
    """Writes the trace of one case."""
    made, _ = asyncio.run(run(case))
    file = TRACES / f"{name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in _lines(name, case, made)))
    return file


def _lines(name: str, case: Case, made: Run) -> list[Any]:
    head = {
        "case": name,
        "claude": offline.version("@anthropic-ai/claude-code"),
        "how": f"PYTHONPATH=tests python -m support.claude_cli.record {name}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "login": next(iter(case.login), ""),
        "retries": case.retries,
    }
    ids: dict[str, str] = {}
    said = [{who: _stable(line, made.home, ids)} for who, line in made.heard]
    return [head, *said, {"exit": made.exit}]


def _stable(line: Any, home: str, ids: dict[str, str]) -> Any:
    """Replaces values that differ between recordings."""

    def plain(key: str, text: str) -> str:
        if key in _PROSE and len(text) > _SHORT:
            return "(left out)"
        text = text.replace(home, "/home").replace(home.replace("/", "-").replace("_", "-"), "-home")
        text = re.sub(r"(?<=127\.0\.0\.1:)\d+|(?<=cc-socks/)\d+", "0", text)
        return _ID.sub(lambda found: ids.setdefault(found[0], f"{len(ids):08x}-0000-4000-8000-{0:012x}"), text)

    return _timeless(each_string(line, "", plain))


def _timeless(value: Any) -> Any:
    match value:
        case dict():
            return {k: 0 if _TIMES.search(k) and k != _KEPT else _timeless(v) for k, v in value.items()}
        case list():
            return [_timeless(each) for each in value]
    return value


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(record(name, CASES[name]))
