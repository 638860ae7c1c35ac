"""Finds GGUF files where Dragoman, the user, Ollama, LM Studio and the Hugging Face libraries keep them.

    Dragoman          $DRAGOMAN_HOME/weights/NAME.gguf
    Ollama            manifests/HOST/OWNER/NAME/TAG, which names blobs/sha256-… ($OLLAMA_MODELS or ~/.ollama/models)
    LM Studio         PUBLISHER/REPOSITORY/FILE.gguf in ~/.lmstudio/models or ~/.cache/lm-studio/models
    Hugging Face      models--OWNER--REPOSITORY/snapshots/REVISION/FILE.gguf in $HF_HUB_CACHE or $HF_HOME/hub

Only names and sizes are read here. A `Scan` remembers what it has looked at, so that a change is noticed without
another scan.

Source: https://github.com/ollama/ollama/blob/main/docs/faq.mdx, https://lmstudio.ai/docs/app/advanced/import-model,
https://huggingface.co/docs/huggingface_hub/guides/manage-cache (2026-11).
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.backends.embedded import weights
from dragoman.catalog import models as catalog

Origin: TypeAlias = Literal["settings", "pulled", "folder", "ollama", "lmstudio", "huggingface"]

_PART: Final = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")
_DEPTH: Final = 8
"""Depth of folders below a root in which files are found."""
_MANIFEST_BYTES: Final = 1 << 20
_MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_OLLAMA_HOST: Final = "registry.ollama.ai"
_OLLAMA_SERVICE: Final = Path("/usr/share/ollama/.ollama/models")
"""Where Ollama's Linux service keeps its models."""

Stamp: TypeAlias = tuple[int, int] | None
"""Time of the last change and size; None: it does not exist."""


class FoundFile(NamedTuple):
    """A file that may be a model."""

    name: str
    path: Path
    origin: Origin
    prefix: str = ""
    """Makes the name unique where another model has the same one."""
    aliases: tuple[str, ...] = ()
    size_bytes: int = 0
    """Of all parts together."""


class Scan:
    """One look at all folders."""

    def __init__(self) -> None:
        self.files: list[FoundFile] = []
        self._seen: dict[Path, Stamp] = {}

    def is_current(self) -> bool:
        """Whether nothing has changed since: the folders contain the same files, of the same sizes."""
        return all(_stamp(path) == seen for path, seen in self._seen.items())

    def add(self, file: FoundFile) -> None:
        """Adds a file; of a model in several parts, the first one, if all are there."""
        self._look(file.path)
        part = _PART.match(file.path.stem)
        if part is None:
            self.files.append(file._replace(size_bytes=_size(file.path)))
        elif int(part["number"]) == 1 and all(each.is_file() for each in parts_of(file.path)):
            name = file.name.removesuffix(file.path.stem) + part["name"]
            self.files.append(file._replace(name=name, size_bytes=sum(map(_size, parts_of(file.path)))))

    def below(self, folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
        """Yields the models below a folder, in the order of their names; no projectors."""
        for entry in self.entries(folder):
            if entry.is_dir() and depth and not entry.name.startswith("."):
                yield from self.below(entry, depth - 1)
            elif entry.suffix == ".gguf" and not entry.name.startswith("mmproj") and entry.is_file():
                yield entry

    def entries(self, folder: Path) -> list[Path]:
        """Returns what is in a folder, sorted; nothing if it cannot be read."""
        self._look(folder)
        try:
            return sorted(folder.iterdir())
        except OSError:
            return []

    def read(self, path: Path) -> bytes:
        """Returns the beginning of a small file."""
        self._look(path)
        try:
            with path.open("rb") as file:
                return file.read(_MANIFEST_BYTES)
        except OSError:
            return b""

    def _look(self, path: Path) -> None:
        self._seen[path] = _stamp(path)


def parts_of(path: Path) -> list[Path]:
    """Returns the files of a model, of which this is one: several if its name ends in `-00001-of-00003`."""
    part = _PART.match(path.stem)
    if part is None:
        return [path]
    numbers = range(1, int(part["count"]) + 1)
    return [path.with_name(f"{part['name']}-{n:0{len(part['number'])}}-of-{part['count']}.gguf") for n in numbers]


def scan(folders: tuple[str, ...], *, discover: bool, environ: Mapping[str, str] = os.environ) -> Scan:
    """Returns the files that may be models, Dragoman's own first.

    Args:
        folders: the folders of the settings.
        discover: whether to look where other programs keep their models.
        environ: the environment variables.
    """
    found = Scan()
    _add_pulled(found)
    for folder in folders:
        root = Path(folder).expanduser()
        for path in found.below(root):
            found.add(FoundFile(path.stem, path, "folder", path.parent.name))
    if discover:
        for root in _ollama_folders(environ):
            _add_ollama(found, root)
        for folder in (".lmstudio/models", ".cache/lm-studio/models"):
            _add_lmstudio(found, Path.home() / folder)
        _add_hugging_face(found, _hub_cache(environ))
    return found


def _add_pulled(found: Scan) -> None:
    folder = weights.cache_dir() / "weights"
    names = {weights.weights_path(profile): profile for profile in catalog.models()}
    here = {path for path in found.entries(folder) if path.suffix == ".gguf"}
    for path, profile in names.items():
        if path in here:
            found.add(FoundFile(profile.name, path, "pulled", aliases=profile.aliases))
    for path in sorted(here - names.keys()):
        source, *rest = path.stem.split("--", 3)
        if source == "hf" and len(rest) == 3:
            alias = f"hf:{rest[0]}/{rest[1]}/{rest[2].replace('--', '/')}.gguf"
            found.add(FoundFile(path.stem, path, "pulled", aliases=(alias,)))


def _ollama_folders(environ: Mapping[str, str]) -> list[Path]:
    if own := environ.get("OLLAMA_MODELS"):
        return [Path(own).expanduser()]
    return [Path.home() / ".ollama/models", _OLLAMA_SERVICE]


def _add_ollama(found: Scan, root: Path) -> None:
    paths = [root / "manifests"]
    for _ in ("host", "owner", "name", "tag"):
        paths = [entry for path in paths for entry in found.entries(path)]
    for manifest in paths:
        _add_manifest(found, root, manifest)


def _add_manifest(found: Scan, root: Path, manifest: Path) -> None:
    host, owner, model, tag = manifest.parts[-4:]
    try:
        layers = msgspec.json.decode(found.read(manifest), type=dict[str, Any]).get("layers", [])
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == _MODEL_LAYER]
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return
    name = model if owner == "library" else f"{owner}/{model}"
    name = name if host == _OLLAMA_HOST else f"{host}/{name}"
    blobs = [root / "blobs" / str(digest).replace(":", "-") for digest in digests]
    if len(blobs) == 1 and "/" not in str(digests[0]) and blobs[0].is_file():  # a manifest comes from a server
        found.add(FoundFile(f"{name}:{tag}", blobs[0], "ollama", "ollama", (name,) if tag == "latest" else ()))


def _add_lmstudio(found: Scan, root: Path) -> None:
    for path in found.below(root):
        below = path.relative_to(root).with_suffix("").as_posix()
        found.add(FoundFile(path.stem, path, "lmstudio", "lmstudio", (below,) if "/" in below else ()))


def _hub_cache(environ: Mapping[str, str]) -> Path:
    if own := environ.get("HF_HUB_CACHE"):
        return Path(own).expanduser()
    if home := environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "huggingface" / "hub"


def _add_hugging_face(found: Scan, root: Path) -> None:
    for folder in found.entries(root):
        kind, *names = folder.name.split("--")
        if kind == "models" and names:
            _add_repository(found, folder, "/".join(names))


def _add_repository(found: Scan, folder: Path, repository: str) -> None:
    """Adds the files of all snapshots, of each name the newest one."""
    snapshots = sorted(found.entries(folder / "snapshots"), key=lambda path: _stamp(path) or (0, 0))
    newest = {path.relative_to(snapshot).as_posix(): path for snapshot in snapshots for path in found.below(snapshot)}
    for name, path in newest.items():
        found.add(FoundFile(path.stem, path, "huggingface", repository, (f"hf:{repository}/{name}",)))


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _size(path: Path) -> int:
    stamp = _stamp(path)
    return stamp[1] if stamp else 0
