"""`dragoman pull hf:owner/repo`: the choice of files, parts, projector and resumption, from a small Hub on loopback."""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.memory import MB, PROCESS_BYTES
from dragoman.backends.embedded.media import find_projector
from support.gateway import command, environment, run, until
from support.gguf_files import WHOLE, gguf, number
from support.hub_server import hub

LAYERS = {
    "llama.block_count": number("u32", 10),
    "llama.embedding_length": number("u32", 1000),
    "llama.attention.head_count": number("u32", 10),
}
HEADER = gguf(LAYERS | WHOLE)
FILES = {
    "README.md": b"hello",
    "m-Q4_K_M.gguf": HEADER + b"4" * 1_000_000,
    "m-Q8_0-00001-of-00002.gguf": HEADER + b"8" * 1_000_000,
    "m-Q8_0-00002-of-00002.gguf": b"GGUF" + b"9" * 500_000,
    "m-F16.gguf": HEADER + b"f" * 3_000_000,
    "mmproj-m-F32.gguf": b"GGUF projector, large",
    "mmproj-m-F16.gguf": b"GGUF projector",
}
CACHE_BYTES = 40_000 * 4096 * 2
"""The KV cache of `LAYERS`: 40 kB for each of 4096 tokens, in two slots."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def variables(home: Path, address: str, **more: str) -> dict[str, str]:
    hub_settings = {"HF_ENDPOINT": address, "HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**hub_settings, "DRAGOMAN_HOME": str(home / "dragoman"), **more}


def pull(home: Path, address: str, *args: str, **more: str) -> "subprocess.CompletedProcess[str]":
    # a new process, as huggingface_hub reads its settings when it is imported
    env = environment(home) | variables(home, address, **more)
    return subprocess.run(command("pull", *args), env=env, cwd=home, capture_output=True, text=True, check=False)


def weights_in(home: Path) -> list[str]:
    return sorted(file.name for file in (home / "dragoman" / "weights").glob("*.gguf"))


def test_best_quantization_is_pulled_with_projector(home: Path) -> None:
    with hub(FILES) as server:
        server.page_size = 2
        done = pull(home, server.address, "hf:owner/repo", DRAGOMAN_EMBEDDED_MEMORY_MB="16000")
        requests = list(server.requests)
    first = home / "dragoman/weights/hf--owner--repo--m-Q8_0-00001-of-00002.gguf"
    assert done.stdout == f"{first}\n", done.stderr
    assert "chosen of 3 models: hf:owner/repo/m-Q8_0-00001-of-00002.gguf, 1.5 MB; needs about " in done.stderr
    assert " of 16.00 GB of memory; with its projector for images, 0.0 MB" in done.stderr
    assert requests[:4] == ["LIST", "LIST 2", "LIST 4", "LIST 6"]
    assert requests[4] == "GET bytes=0-1048575", "only the beginning of a file is read for the estimate"
    stem = "hf--owner--repo--m-Q8_0"
    assert weights_in(home) == [f"{stem}-00001-of-00002.gguf", f"{stem}-00002-of-00002.gguf", f"{stem}.mmproj.gguf"]
    projector = find_projector(first, EmbeddedConfig())
    assert projector is not None
    assert projector.read_bytes() == FILES["mmproj-m-F16.gguf"]


def test_estimate_uses_header_of_file(home: Path) -> None:
    """The files are small; what does not fit is the KV cache."""
    with hub(FILES) as server:
        needed = CACHE_BYTES + PROCESS_BYTES + sum(len(FILES[f"m-Q8_0-0000{part}-of-00002.gguf"]) for part in (1, 2))
        done = pull(home, server.address, "hf:owner/repo", DRAGOMAN_EMBEDDED_MEMORY_MB=str(needed // MB))
        assert done.returncode == 2
        assert "no model of owner/repo fits into " in done.stderr
        assert f"the smallest needs about {needed / MB:.1f} MB; to download one nevertheless, name " in done.stderr
        assert "hf:owner/repo:Q8_0" in done.stderr
        done = pull(home, server.address, "hf:owner/repo", DRAGOMAN_EMBEDDED_MEMORY_MB=str(needed * 3 // 2 // MB))
    assert done.returncode == 0, done.stderr
    assert "chosen of 3 models: hf:owner/repo/m-Q4_K_M.gguf" in done.stderr


def test_quantization_can_be_named(home: Path) -> None:
    with hub(FILES) as server:
        done = pull(home, server.address, "hf:owner/repo:q4_k_m", "--json", "-q")
        file = home / "dragoman/weights/hf--owner--repo--m-Q4_K_M.gguf"
        assert json.loads(done.stdout) == {
            "name": "hf:owner/repo/m-Q4_K_M.gguf",
            "path": str(file),
            "projector": str(file.with_suffix(".mmproj.gguf")),
        }
        again = pull(home, server.address, "hf:owner/repo:Q4_K_M")
        assert "hf:owner/repo/m-Q4_K_M.gguf is already downloaded" in again.stderr
        unknown = pull(home, server.address, "hf:owner/repo:Q5_K_M")
    assert unknown.returncode == 2
    assert "has no quantization 'Q5_K_M'" in unknown.stderr
    assert "it has Q4_K_M (1.0 MB), Q8_0 (1.5 MB), F16 (3.0 MB)" in unknown.stderr


@pytest.mark.parametrize(
    ("name", "message", "status"),
    [
        ("hf:owner/other", "the Hugging Face Hub does not have owner/other", 2),
        (
            "hf:owner",
            "expected hf:owner/repo, hf:owner/repo:QUANTIZATION or hf:owner/repo/file.gguf, got 'hf:owner'",
            2,
        ),
        ("hf:owner/repo/file.bin", "expected hf:owner/repo, ", 2),
    ],
)
def test_wrong_repository_is_reported(name: str, message: str, status: int, home: Path) -> None:
    with hub(FILES) as server:
        done = pull(home, server.address, name)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


def test_unreachable_hub_is_reported_at_once(home: Path) -> None:
    with hub(FILES) as server:
        address = server.address
    done = pull(home, address, "hf:owner/repo")
    assert done.returncode == 1
    assert "the Hugging Face Hub could not be reached for owner/repo" in done.stderr


def test_failing_hub_is_reported(home: Path) -> None:
    with hub(FILES) as server:
        server.broken = 503
        done = pull(home, server.address, "hf:owner/repo")
    assert done.returncode == 1
    assert "the Hugging Face Hub failed for owner/repo" in done.stderr


def test_wrong_checksum_is_rejected(home: Path) -> None:
    with hub(FILES, sha256=hashlib.sha256(b"other").hexdigest()) as server:
        done = pull(home, server.address, "hf:owner/repo:Q4_K_M")
    assert done.returncode == 1
    assert "expected sha256" in done.stderr
    assert weights_in(home) == []


def parts(home: Path) -> Path:
    return home / "dragoman/weights/.parts/hf--owner--repo--m-Q4_0"


def kill_when_written(pid: int, folder: Path, size_bytes: int) -> None:
    until(lambda: any(file.stat().st_size == size_bytes for file in folder.glob("hub-*")), "the bytes that arrived")
    os.kill(pid, signal.SIGKILL)


def test_killed_pull_continues(home: Path) -> None:
    content = HEADER + b"4" * (5 << 20)
    with hub({"m-Q4_0.gguf": content}) as server:
        env = environment(home) | variables(home, server.address)
        with subprocess.Popen(command("pull", "-q", "hf:owner/repo:Q4_0"), env=env, cwd=home) as process:
            server.cut_at, server.cut_after = len(content) - 10, 1
            server.on_cut = lambda: kill_when_written(process.pid, parts(home), len(content) - 10)
        assert process.returncode == -signal.SIGKILL
        server.requests.clear()
        done = pull(home, server.address, "hf:owner/repo:Q4_0")
        requests = [request for request in server.requests if request.startswith("GET")]
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == content
    assert requests[1:] == [f"GET bytes={len(content) - 10}-"]
    assert not parts(home).exists(), "complete downloads leave nothing else behind"


def test_base_install_names_the_missing_package(home: Path) -> None:
    from support.base_environment import dragoman

    done = dragoman("pull", "hf:owner/repo")
    assert done.returncode == 2
    assert "pulling owner/repo needs huggingface-hub; run: pip install 'dragoman[embedded]'" in done.stderr
    assert run(home, "pull", "--help").returncode == 0
