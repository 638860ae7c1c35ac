"""Layout: folders hold few modules, and no module imports itself by way of others."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

from .finding import Finding

MODULES_PER_FOLDER = 15
# Folders of many files of one kind: one for each format, and the protocol of one program.
LARGE = {"src/dragoman/formats", "src/dragoman/backends/claude_cli"}


def check_folders(paths: Iterable[str]) -> Iterator[Finding]:
    """Yields each folder of `paths` with more than `MODULES_PER_FOLDER` modules, `__init__` not counted."""
    files = [PurePosixPath(path) for path in paths]
    counts = Counter(str(path.parent) for path in files if path.name != "__init__.py")
    for folder, count in counts.items():
        if count > MODULES_PER_FOLDER and folder not in LARGE:
            yield Finding(folder, 1, f"{count} modules", f"merge or part some: {MODULES_PER_FOLDER} are allowed")


def check_cycles(imports: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Yields the first cycle of `imports` (module -> modules it imports), those of type checking included."""
    left = {module: set(used) - {module} for module, used in imports.items()}
    try:
        TopologicalSorter(left).prepare()
    except CycleError as error:
        found = " imports ".join(reversed(error.args[1]))
        yield Finding("src/dragoman", 1, found, "move what both need to a module below both")
