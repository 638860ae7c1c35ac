"""Reads the metadata of a model from the header of a GGUF file, in a tenth of a second.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3, 2026-11). The `gguf` package reads the
same but needs numpy, and decodes the whole vocabulary.
"""

import io
import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from dragoman.core.errors import ConfigError

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
RANKS: Final = 4
"""`Metadata.pooling` of a model that ranks documents."""
_STRING, _ARRAY = 8, 9
_CONTROL, _USER_DEFINED = 3, 4
_BITS: Final = {0: 32, 1: 16, 2: 4.5, 3: 5, 6: 5.5, 7: 6, 8: 8.5, 10: 2.625, 11: 3.4375, 12: 4.5, 13: 5.5, 14: 6.5625}
"""Bits of a number by the type of its tensor, of the frequent types."""
_REPACKED: Final = frozenset((2, 10, 12, 20))
"""Types that are copied in another order on x86 (Q4_0, Q2_K, Q4_K, IQ4_NL), measured by `bench.model_memory`."""
_LIMIT_BYTES: Final = 1 << 28
"""No string or array in the header of a real model is nearly as large; a larger one means a damaged file."""
_MERGES: Final = ("tokenizer.ggml.merges",)
_TOKENS: Final = ("tokenizer.ggml.tokens",)
_BLOCK_BYTES: Final = 1 << 16
_LENGTH: Final = struct.Struct("<Q")
_TENSOR_REST_BYTES: Final = 12
"""Type and offset of a tensor, after its name and dimensions."""
_FILE_TYPES: Final = dict(
    enumerate(("F32", "F16", "Q4_0", "Q4_1", "", "", "", "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L"))
) | dict(
    enumerate(
        (
            *("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS"),
            *("IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16", "", "", "", "TQ1_0"),
            *("TQ2_0", "MXFP4_MOE", "NVFP4", "Q1_0"),
        ),
        14,
    )
)
"""Names of `general.file_type`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of a model that Dragoman uses."""

    name: str
    chat_template: str
    """Jinja; empty if the file has none."""
    context_window: int
    bos: str
    eos: str
    control_tokens: tuple[str, ...]
    """Texts that the tokenizer maps to control tokens, such as `<|im_end|>`."""
    user_tokens: tuple[str, ...]
    """Texts that the model's maker added to the vocabulary: some are special, others are only runs of spaces."""
    pooling: int = 0
    """0: a model that writes text; `RANKS`: one that ranks documents; another number: one that makes embeddings."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What people want to know about the weights in a file."""

    architecture: str
    parameters: int
    """Number of weights in this file; a model in several files has more."""
    quantization: str
    """Such as `Q4_K_M`; "": not stated."""
    licence: str
    """As its maker wrote it; "": not stated."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides whether and where a model can be loaded; without its vocabulary."""

    architecture: str
    kind: str
    """`general.type`: `model`, or for example `mmproj`."""
    context_window: int
    pooling: int
    """As `Metadata.pooling`."""
    cache_bytes_per_token: int
    """Size of the KV cache for each token of the context, in 16-bit numbers."""
    has_vocabulary: bool
    repacked_share: float = 0.0
    """Share of the weights that the engine copies into the order that the CPU computes fastest, from 0 to 1."""


def shape(path: Path) -> Shape:
    """Returns the sizes in the file's header.

    Raises:
        ConfigError: the file cannot be read or is not a GGUF file.
    """
    return _read(path, _whole_shape)


def _whole_shape(file: IO[bytes]) -> Shape:
    fields: dict[str, Any] = {}
    tensors = _read_fields(file, fields, (*_MERGES, *_TOKENS))
    return replace(_shape(fields), repacked_share=_repacked_share(file, tensors))


def _shape(fields: Mapping[str, Any]) -> Shape:
    architecture = str(fields.get("general.architecture", ""))

    def number(key: str, default: int = 0) -> int:
        value = fields.get(f"{architecture}.{key}", default)
        return value if isinstance(value, int) else default

    layers, heads = number("block_count"), max(1, number("attention.head_count", 1))
    in_cache = fields.get(f"{architecture}.attention.head_count_kv", heads)
    # A list has a number for each layer; models with recurrent layers have zeros in it.
    cached_heads = sum(in_cache) if isinstance(in_cache, list) else layers * int(in_cache)
    head_size = number("embedding_length") // heads
    sizes = number("attention.key_length", head_size) + number("attention.value_length", head_size)
    return Shape(
        architecture=architecture,
        kind=str(fields.get("general.type", "model")),
        context_window=number("context_length", 2048),
        pooling=number("pooling_type"),
        cache_bytes_per_token=2 * cached_heads * sizes,
        has_vocabulary=bool(fields.get("tokenizer.ggml.tokens")),
    )


def _repacked_share(file: IO[bytes], tensors: int) -> float:
    """Reads what follows the fields: of each tensor its name, sizes, type and place."""
    sizes = dict[bool, float]()
    for _ in range(tensors):
        _string(file)
        count = math.prod(_number(file, "Q") for _ in range(_number(file, "I")))
        kind = _number(file, "I")
        _number(file, "Q")
        sizes[kind in _REPACKED] = sizes.get(kind in _REPACKED, 0) + count * _BITS.get(kind, 8)
    return sizes.get(True, 0) / (sum(sizes.values()) or 1)


def shape_of_beginning(data: bytes) -> Shape | None:
    """Returns the sizes in the first bytes of a file, without `repacked_share`; None: they are not all there.

    The fields of a real model begin with them; its vocabulary, which is long, is last.
    """
    found: dict[str, Any] = {}
    with suppress(struct.error, KeyError, ValueError):
        _read_fields(io.BytesIO(data), found)
    architecture = found.get("general.architecture", "")
    return _shape(found) if f"{architecture}.attention.head_count" in found else None


def contents(path: Path) -> Contents:
    """Returns what the header says about the weights.

    Raises:
        ConfigError: the file cannot be read or is not a GGUF file.
    """
    return _read(path, _contents)


def metadata(path: Path) -> Metadata:
    """Returns the metadata in the file's header.

    Raises:
        ConfigError: the file cannot be read or is not a GGUF file.
    """
    return _read(path, lambda file: _metadata(_fields(file, _MERGES), path.stem))


def fields(path: Path) -> Mapping[str, Any]:
    """Returns all fields in the file's header, by key.

    Raises:
        ConfigError: the file cannot be read or is not a GGUF file.
    """
    return _read(path, _fields)


def _read(path: Path, read: Callable[[IO[bytes]], T]) -> T:
    try:
        with path.open("rb") as file:
            return read(file)
    except (OSError, struct.error, KeyError, ValueError) as e:
        raise ConfigError(f"{path} is not a readable GGUF file: {e}") from e


def _metadata(fields: Mapping[str, Any], default_name: str) -> Metadata:
    def fact(key: str, default: T) -> T:
        value = fields.get(key, default)
        if not isinstance(value, type(default)):
            raise ValueError(f"expected {key} to be of type {type(default).__name__}, got {type(value).__name__}")
        return value

    def token(key: str) -> str:
        number = fact(f"tokenizer.ggml.{key}_token_id", -1)
        return tokens[number] if 0 <= number < len(tokens) else ""

    def of_kind(kind: int) -> tuple[str, ...]:
        return tuple(t for t, k in zip(tokens, kinds, strict=False) if k == kind)

    tokens, kinds = fact("tokenizer.ggml.tokens", list[str]()), fact("tokenizer.ggml.token_type", list[int]())
    if not all(isinstance(t, str) for t in tokens):
        raise ValueError("expected tokenizer.ggml.tokens to be strings")
    context_window = fact(f"{fact('general.architecture', '')}.context_length", 2048)
    if context_window < 1:
        raise ValueError(f"expected a context of at least 1 token, got {context_window}")
    return Metadata(
        name=fact("general.name", default_name),
        chat_template=fact("tokenizer.chat_template", ""),
        context_window=context_window,
        bos=token("bos"),
        eos=token("eos"),
        control_tokens=of_kind(_CONTROL),
        user_tokens=of_kind(_USER_DEFINED),
        pooling=fact(f"{fact('general.architecture', '')}.pooling_type", 0),
    )


def _fields(file: IO[bytes], skipped: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _read_fields(file, found, skipped)
    return found


def _read_fields(file: IO[bytes], into: dict[str, Any], skipped: Sequence[str] = ()) -> int:
    """Reads all fields, as far as the file goes, and returns the number of tensors that follow.

    Args:
        file: The file, at its beginning.
        into: Receives the fields by their keys.
        skipped: Keys of lists of strings of which only the number is wanted.
    """
    if file.read(4) != b"GGUF":
        raise ValueError("expected it to begin with 'GGUF'")
    _number(file, "I")
    tensors = _number(file, "Q")
    for _ in range(_number(file, "Q")):
        key = _string(file)
        into[key] = _value(file, _number(file, "I"), key not in skipped)
    return tensors


def _contents(file: IO[bytes]) -> Contents:
    fields: dict[str, Any] = {}
    parameters = 0
    for _ in range(_read_fields(file, fields, (*_MERGES, *_TOKENS))):
        _string(file)
        parameters += math.prod(_number(file, "Q") for _ in range(_number(file, "I")))
        file.seek(_TENSOR_REST_BYTES, os.SEEK_CUR)
    kind = fields.get("general.file_type")
    return Contents(
        architecture=str(fields.get("general.architecture", "")),
        parameters=parameters,
        quantization=_FILE_TYPES.get(kind, "") if isinstance(kind, int) else "",
        licence=str(fields.get("general.license", "")),
    )


def _value(file: IO[bytes], kind: int, keep: bool = True) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, _SCALARS[kind])
    inner, count = _number(file, "I"), _number(file, "Q")
    if inner == _STRING:
        return _strings(file, count, keep)
    form = f"<{count}{_SCALARS[inner]}"
    return list(struct.unpack(form, _bytes(file, struct.calcsize(form))))


def _string(file: IO[bytes]) -> str:
    return _bytes(file, _number(file, "Q")).decode("utf-8", "replace")


def _strings(file: IO[bytes], count: int, keep: bool) -> Sequence[Any]:
    """Reads an array of strings in blocks, as a vocabulary has up to 300,000; returns only their number if not kept."""
    found: list[str] = []
    data, at, left = b"", 0, count
    while left:
        begin = end = at + 8
        if begin <= len(data):
            end += _LENGTH.unpack_from(data, at)[0]
        if end <= len(data):
            if keep:
                found.append(data[begin:end].decode("utf-8", "replace"))
            at, left = end, left - 1
            continue
        if end - begin > _LIMIT_BYTES:
            raise ValueError(f"expected a length below {_LIMIT_BYTES} bytes, got {end - begin}")
        missing = end - len(data)
        block = file.read(max(_BLOCK_BYTES, missing))
        if len(block) < missing:
            raise ValueError(f"expected {left} more strings, got the end of the file")
        data, at = data[at:] + block, 0
    file.seek(at - len(data), os.SEEK_CUR)
    return found if keep else range(count)


def _number(file: IO[bytes], form: str) -> int:
    value: int = struct.unpack(f"<{form}", _bytes(file, struct.calcsize(f"<{form}")))[0]
    return value


def _bytes(file: IO[bytes], count: int) -> bytes:
    if count > _LIMIT_BYTES:
        raise ValueError(f"expected a length below {_LIMIT_BYTES} bytes, got {count}")
    data = file.read(count)
    if len(data) < count:
        raise ValueError(f"expected {count} more bytes, got {len(data)}")
    return data
