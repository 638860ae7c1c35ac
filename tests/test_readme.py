"""Every Python example of the README runs as it stands, against a real gateway on the real small model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import DEADLINE_S, Gateway, environment

README = (Path(__file__).parent.parent / "README.md").read_text()
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


def test_readme_has_the_examples() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.model
@pytest.mark.parametrize("number", range(4), ids=["openai", "openai streamed", "anthropic", "anthropic streamed"])
def test_sdk_example(number: int, gateway: Gateway, tmp_path: Path) -> None:
    """A call whose arguments fit the schema; where the example goes on to a second turn, words come of it."""
    lines = run(EXAMPLES[number], tmp_path, gateway.url).strip().splitlines()
    calls = [line for line in lines if CALL.fullmatch(line.strip())]
    assert len(calls) == 1
    if "messages +=" in EXAMPLES[number]:
        assert lines[-1].strip()
        assert lines[-1] not in calls


def test_library_example(tmp_path: Path) -> None:
    printed = run(EXAMPLES[4], tmp_path, "")
    assert "ToolCallStart(index=0" in printed
    assert '{"text": "</tool_call>"}' in printed.replace("')\nToolCallDelta(index=0, text='", "")
