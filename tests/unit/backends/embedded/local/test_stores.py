"""Files of several programs in one list: names, parts, changes, and what is left out."""

import json
from pathlib import Path

import pytest

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import stores
from dragoman.backends.embedded.local.files import LocalFiles
from dragoman.backends.embedded.local.stores import FoundFile
from support.gguf_files import WHOLE, gguf, text

MODEL = gguf(WHOLE)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in ("OLLAMA_MODELS", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "DRAGOMAN_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def write(path: Path, data: bytes = MODEL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def listed(tmp_path: Path, *folders: Path, discover: bool = True) -> LocalFiles:
    default = FoundFile("default", write(tmp_path / "default.gguf"), "settings")
    files = LocalFiles(EmbeddedConfig(folders=tuple(map(str, folders)), discover=discover), default)
    files.refresh()
    return files


def test_parts_are_one_model_when_all_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / "big-00001-of-00002.gguf")
    assert set(listed(tmp_path, folder).models) == {"default"}
    write(folder / "big-00002-of-00002.gguf", b"x" * 10)
    model = listed(tmp_path, folder).models["big"]
    assert (model.path.name, model.size_bytes) == ("big-00001-of-00002.gguf", len(MODEL) + 10)


def test_same_name_in_two_folders_gets_prefix(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "folder" / name / "same.gguf")
    assert set(listed(tmp_path, tmp_path / "folder").models) == {"default", "same", "two/same"}


def test_other_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / "mmproj-model.gguf")
    write(folder / ".hidden" / "model.gguf")
    write(folder / "damaged.gguf", b"GGUF")
    write(folder / "notes.txt")
    write(folder / "encoder.gguf", gguf(WHOLE | {"general.architecture": text("bert")}))
    assert set(listed(tmp_path, folder, tmp_path / "absent").models) == {"default"}


def test_file_with_two_names_is_one_model(tmp_path: Path, home: Path) -> None:
    blob = write(home / ".ollama" / "models" / "blobs" / "sha256-aa")
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"}]
    for below in ("registry.ollama.ai/library/tiny/latest", "registry.ollama.ai/library/tiny/1b", "hf.co/a/b/Q4"):
        write(home / ".ollama" / "models" / "manifests" / below, json.dumps({"layers": layers}).encode())
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "linked.gguf").symlink_to(blob)
    models = listed(tmp_path, tmp_path / "folder").models
    assert set(models) == {"default", "linked"}
    assert set(models["linked"].aliases) == {"hf.co/a/b:Q4", "tiny:1b", "tiny:latest", "tiny"}
    assert set(listed(tmp_path, discover=False).models) == {"default"}


@pytest.mark.parametrize("manifest", ["{", "[]", '{"layers": 5}', '{"layers": [{"mediaType": "x"}]}', "{}"])
def test_damaged_manifests_are_ignored(tmp_path: Path, home: Path, manifest: str) -> None:
    write(home / ".ollama/models/manifests/registry.ollama.ai/library/tiny/latest", manifest.encode())
    assert set(listed(tmp_path).models) == {"default"}


def test_manifest_names_no_file_outside_blobs(tmp_path: Path, home: Path) -> None:
    write(home / "secret")
    (home / ".ollama/models/blobs").mkdir(parents=True)  # through which the path of the digest would lead
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "../../../secret"}]
    path = home / ".ollama/models/manifests/registry.ollama.ai/library/tiny/latest"
    write(path, json.dumps({"layers": layers}).encode())
    assert set(listed(tmp_path).models) == {"default"}


def test_newest_snapshot_of_hub_counts(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root, variable in ((home / ".cache/huggingface/hub", ""), (tmp_path / "own", "HF_HUB_CACHE")):
        if variable:
            monkeypatch.setenv(variable, str(root))
        write(root / "models--a--b" / "snapshots" / "1" / "below" / "m.gguf")
        write(root / "datasets--a--b" / "snapshots" / "1" / "d.gguf")
        model = listed(tmp_path).models["m"]
        assert (model.origin, model.aliases) == ("huggingface", ("hf:a/b/below/m.gguf",))
        assert model.path.is_relative_to(root)


def test_only_changes_are_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / "a.gguf")
    files = listed(tmp_path, folder)
    assert not files.refresh()
    write(folder / "below" / "b.gguf")
    assert files.refresh()
    assert set(files.models) == {"default", "a", "b"}
    (folder / "a.gguf").unlink()
    assert files.refresh()
    assert set(files.models) == {"default", "b"}


def test_scan_does_not_follow_endless_links(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / "a.gguf")
    (folder / "loop").symlink_to(folder)
    found = stores.scan((str(folder),), discover=False, environ={})
    assert {file.name for file in found.files} == {"a"}
