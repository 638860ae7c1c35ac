"""Every Python example of the README runs unchanged, against a real gateway with the small embedded model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.gateway import DEADLINE_S, Gateway, environment
from support.paths import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
CALL = re.compile(r"get_weather \{['\"]city['\"]: ['\"].+['\"]\}")


def run(code: str, home: Path, url: str) -> str:
    assert "http://127.0.0.1:8484" in code or "dragoman" in code
    code = code.replace("http://127.0.0.1:8484", url)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_has_two_python_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.model
def test_readme_sdk_example_prints_call_and_text(gateway: Gateway, tmp_path: Path) -> None:
    """Prints a call whose arguments match the schema, and text in the second turn."""
    lines = run(EXAMPLES[0], tmp_path, gateway.url).strip().splitlines()
    calls = [line for line in lines if CALL.fullmatch(line.strip())]
    assert len(calls) == 1
    assert lines[-1].strip()
    assert lines[-1] not in calls


def test_readme_library_example_prints_events(tmp_path: Path) -> None:
    printed = run(EXAMPLES[1], tmp_path, "")
    assert "ToolCallStart(index=0" in printed
    assert '{"text": "</tool_call>"}' in printed.replace("')\nToolCallDelta(index=0, text='", "")
