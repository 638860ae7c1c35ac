"""Headers of small generated GGUF files, valid, damaged and truncated."""

import io
import struct
from pathlib import Path

import pytest
from gguf.constants import LlamaFileType
from hypothesis import given
from hypothesis import strategies as st

from dragoman.backends.embedded.gguf import (
    Contents,
    Metadata,
    _strings,
    contents,
    metadata,
    shape,
    shape_of_beginning,
)
from dragoman.core.errors import ConfigError
from support.gguf_files import FORMS, WHOLE, array, gguf, number, string, text


def read(path: Path, data: bytes) -> Metadata:
    path.write_bytes(data)
    return metadata(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


def test_metadata_reads_header_fields(file: Path) -> None:
    assert read(file, gguf(WHOLE)) == Metadata(
        name="Tiny",
        chat_template="{{ messages }}",
        context_window=4096,
        bos="<s>",
        eos="<|im_end|>",
        control_tokens=("<s>", "</s>"),
        user_tokens=("<|im_end|>",),
    )


def test_data_after_header_is_not_read(file: Path) -> None:
    assert read(file, gguf(WHOLE) + b"\xff" * 100).name == "Tiny"


def test_missing_fields_have_defaults(file: Path) -> None:
    assert read(file, gguf({})) == Metadata("tiny", "", 2048, "", "", (), ())


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_numbers_of_every_kind_are_skipped(file: Path, kind: str) -> None:
    fields = {"x": number(kind, 1), "xs": array(kind, [1, 0]), **WHOLE}
    assert read(file, gguf(fields)).name == "Tiny"


def test_invalid_utf8_tokens_are_ignored(file: Path) -> None:
    tokens = struct.pack("<IIQQ", 9, 8, 1, 1) + b"\xff"
    assert read(file, gguf(WHOLE | {"tokenizer.ggml.tokens": tokens})).control_tokens == ()


@pytest.mark.parametrize("id", [number("u32", 99), number("i32", -1)])
def test_unknown_token_id_is_ignored(file: Path, id: bytes) -> None:
    assert read(file, gguf(WHOLE | {"tokenizer.ggml.eos_token_id": id})).eos == ""


def test_truncated_file_is_rejected(file: Path) -> None:
    data = gguf(WHOLE)
    for end in range(len(data)):
        with pytest.raises(ConfigError, match=r"tiny\.gguf is not a readable GGUF file"):
            read(file, data[:end])


DAMAGED = [
    ("not GGUF", b"GGML" + gguf(WHOLE)[4:]),
    ("an unknown kind of value", gguf({"x": struct.pack("<I", 13)})),
    ("an array of arrays", gguf({"x": struct.pack("<IIQ", 9, 9, 1)})),
    ("a string without end", gguf({"x": struct.pack("<IQ", 8, 1 << 60)})),
    ("an array without end", gguf({"x": struct.pack("<IIQ", 9, 4, 1 << 27)})),
    ("fields without end", b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63)),
    ("a string longer than the file", gguf({"x": struct.pack("<IQ", 8, 1000) + b"short"})),
    ("a name that is a number", gguf(WHOLE | {"general.name": number("u8", 1)})),
    ("a template that is a number", gguf(WHOLE | {"tokenizer.chat_template": number("u8", 1)})),
    ("a context length that is text", gguf(WHOLE | {"llama.context_length": text("long")})),
    ("a context length of nothing", gguf(WHOLE | {"llama.context_length": number("i32", 0)})),
    ("an architecture that is a list", gguf(WHOLE | {"general.architecture": array("u8", [1])})),
    ("a token id that is text", gguf(WHOLE | {"tokenizer.ggml.eos_token_id": text("x")})),
    ("tokens that are no list", gguf(WHOLE | {"tokenizer.ggml.tokens": number("u8", 1)})),
    ("tokens that are numbers", gguf(WHOLE | {"tokenizer.ggml.tokens": array("u8", [1] * 5)})),
    ("kinds of tokens that are no list", gguf(WHOLE | {"tokenizer.ggml.token_type": number("u8", 1)})),
]


@pytest.mark.parametrize("data", [row[1] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_damaged_file_is_rejected(file: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"tiny\.gguf is not a readable GGUF file: \S"):
        read(file, data)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_damaged_file_raises_only_config_error(tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes) -> None:
    data = gguf(WHOLE)
    at %= len(data)
    file = tmp_path_factory.getbasetemp() / "damaged.gguf"
    try:
        found = read(file, data[:at] + junk + data[at + len(junk) :])
    except ConfigError:
        return
    assert all(isinstance(t, str) for t in (found.name, found.chat_template, found.bos, found.eos))
    assert found.context_window > 0


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        metadata(tmp_path / "none.gguf")


# What people want to know


def tensor(name: str, *dimensions: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, 0, 0)


def test_contents_count_parameters_and_name_quantization_and_licence(file: Path) -> None:
    head = gguf(WHOLE | {"general.file_type": number("u32", 15), "general.license": text("apache-2.0")})
    tensors = tensor("a", 3, 5) + tensor("b", 7)
    file.write_bytes(head[:8] + struct.pack("<Q", 2) + head[16:] + tensors)
    assert contents(file) == Contents("llama", 22, "Q4_K_M", "apache-2.0")


@pytest.mark.parametrize("kind", LlamaFileType)
def test_names_of_quantizations_are_those_of_llama_cpp(kind: LlamaFileType, file: Path) -> None:
    file.write_bytes(gguf({"general.file_type": number("u32", kind.value)}))
    name = "" if kind is LlamaFileType.GUESSED else kind.name.removeprefix("ALL_").removeprefix("MOSTLY_")
    assert contents(file).quantization == name


def test_contents_of_unstated_facts_are_empty(file: Path) -> None:
    file.write_bytes(gguf({}))
    assert contents(file) == Contents("", 0, "", "")


def test_shape_of_beginning_needs_only_the_first_fields(file: Path) -> None:
    facts = {
        "general.architecture": text("llama"),
        "llama.block_count": number("u32", 2),
        "llama.context_length": number("u32", 4096),
        "llama.embedding_length": number("u32", 64),
        "llama.attention.head_count": number("u32", 4),
        "llama.attention.head_count_kv": number("u32", 2),
    }
    data = gguf(facts | WHOLE)
    file.write_bytes(data)
    found = shape_of_beginning(data[:-40])
    assert found is not None
    assert found.cache_bytes_per_token == shape(file).cache_bytes_per_token == 2 * 2 * 2 * 32
    assert shape_of_beginning(data[:60]) is None
    assert shape_of_beginning(b"<html>") is None


def test_long_vocabulary_is_read_in_blocks(file: Path) -> None:
    """Strings longer and shorter than a block, which end in it and between two."""
    texts = ["é" * (at * 997 % 70_000) for at in range(40)]
    written = b"".join(struct.pack("<Q", len(text.encode())) + text.encode() for text in texts)
    stream = io.BytesIO(written + b"behind")
    assert _strings(stream, len(texts), keep=True) == texts
    assert stream.read() == b"behind"
    stream.seek(0)
    assert len(_strings(stream, len(texts), keep=False)) == len(texts)
    assert stream.read() == b"behind"
    with pytest.raises(ValueError, match="expected 1 more strings, got the end of the file"):
        _strings(io.BytesIO(written[:-1]), len(texts), keep=False)
