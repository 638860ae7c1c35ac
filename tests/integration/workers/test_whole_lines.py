"""Several processes write whole lines to one pipe."""

import json
import os
import subprocess
import sys
from pathlib import Path

WRITER = """
import sys
from pathlib import Path
from dragoman.cli._workers.whole_lines import WholeLines

out = WholeLines(1, Path(sys.argv[1]))
sys.stdin.read(1)
for number in range(50):
    print('{"writer": ' + sys.argv[2], end=", ", file=out)
    out.write(f'"number": {number}, "text": "' + sys.argv[2] * 20_000 + '"}\\n')
"""


def test_long_lines_are_not_mixed(tmp_path: Path) -> None:
    """A pipe mixes writes of more than 4096 bytes."""
    reads, writes = os.pipe()
    command = [sys.executable, "-c", WRITER, str(tmp_path / "lock")]
    writers = [subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=writes) for name in "123"]
    os.close(writes)
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"x")
        writer.stdin.close()
    with open(reads, encoding="utf-8") as lines:
        seen = [json.loads(line) for line in lines]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    for name in (1, 2, 3):
        own = [line for line in seen if line["writer"] == name]
        assert [line["number"] for line in own] == list(range(50))
        assert all(line["text"] == str(name) * 20_000 for line in own)


def test_unfinished_line_waits(tmp_path: Path) -> None:
    script = WRITER.partition("sys.stdin")[0] + "out.write('a'); out.flush(); out.write('b\\nc'); print(out.isatty())"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "lock")], capture_output=True, text=True)
    assert sorted(done.stdout.split()) == ["False", "ab"]
