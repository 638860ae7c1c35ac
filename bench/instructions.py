"""Instructions of Dragoman for a request and a delta, counted by callgrind: the same on a busy machine, to 1 %.

`python -m bench.instructions` wants valgrind, and takes minutes, as that runs a process fifty times slower. What the
system does for the process (sockets) is not counted, so a figure says what our own work is, and not what a server can
carry.
"""

import argparse
import asyncio
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.client import Server, serving
from bench.figures import Figure, machine, table
from bench.proxies import OURS, TASKS, Task, Way, ask

GOALS: Final = {"whole reply": 700.0, "a delta alone": 60.0, "8 deltas at once": 26.0}
"""Thousands of instructions: of a gateway like this one in a trial of its parts."""
UNREAD: Final = 15.0
"""A delta that passes unread."""
TIMES: Final = 40
"""Requests for whole replies; of streams a tenth."""


def measure() -> Iterator[Figure]:
    """Each task by each way."""
    with tempfile.TemporaryDirectory() as folder:
        counted = f"--callgrind-out-file={folder}/out"
        under = ("valgrind", "--tool=callgrind", counted, "--log-file=/dev/null")
        with serving("floor") as floor:
            for proxy in dict.fromkeys(way.proxy for way in OURS):
                trusted = () if proxy == "Dragoman" else (proxy,)
                with serving("relay", str(floor.port), *trusted, under=under) as server:
                    for way in (way for way in OURS if way.proxy == proxy):
                        for task in TASKS:
                            yield asyncio.run(_figure(task, way, server, Path(folder)))


async def _figure(task: Task, way: Way, server: Server, folder: Path) -> Figure:
    times = TIMES // 10 if task.stream else TIMES
    await ask(task, way, server, 2)
    _control(server, "-z")
    await ask(task, way, server, times)
    _control(server, "-d")
    thousands = _counted(folder) / 1000 / times / (task.deltas if task.stream else 1)
    goal = UNREAD if task.stream and way.unread else GOALS[task.said]
    return Figure(f"{task.said}: {way.said}", thousands, "k instr" + ("/delta" if task.stream else ""), goal=goal)


def _control(server: Server, what: str) -> None:
    """Have callgrind begin anew, or write down what it has counted."""
    subprocess.run(["callgrind_control", what, str(server.pid)], check=True, capture_output=True)


def _counted(folder: Path) -> int:
    """The sum in the one file that was written; no trace is left for the next."""
    (written,) = folder.glob("out.*")
    found = re.search(r"^(?:totals|summary): (\d+)", written.read_text(), re.MULTILINE)
    written.unlink()
    assert found is not None
    return int(found[1])


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__).parse_args()
    figures = list(measure())
    print(f"{machine()}\n\n{table([('instructions', figures)])}")


if __name__ == "__main__":
    main()
