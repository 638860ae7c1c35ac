"""What a GGUF file says of its model: read from the header alone, in a tenth of a second.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3, 2026-11). The `gguf` package
reads the same but needs numpy, and decodes all of the vocabulary's numbers on the way.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from dragoman.core.errors import ConfigError

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CONTROL, _USER_DEFINED = 3, 4
_LIMIT = 1 << 28
"""No count or length in a header of a real model comes near; a larger one is a broken file."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What Dragoman needs to know of a model's file."""

    name: str
    chat_template: str
    """Jinja; empty where the file has none."""
    context_tokens: int
    bos: str
    eos: str
    special_tokens: tuple[str, ...]
    """Texts that the tokenizer turns into tokens with a meaning of their own, such as `<|im_end|>`."""


def metadata(path: Path) -> Metadata:
    """The facts of the file's header.

    Raises: ConfigError: it cannot be read or is no GGUF file.
    """
    try:
        with path.open("rb") as file:
            fields = _fields(file)
    except (OSError, struct.error, KeyError, UnicodeDecodeError, ValueError) as e:
        raise ConfigError(f"{path} is not a readable GGUF file: {e}") from e
    tokens: list[str] = fields.get("tokenizer.ggml.tokens", [])
    kinds: list[int] = fields.get("tokenizer.ggml.token_type", [])
    architecture = fields.get("general.architecture", "")

    def token(key: str) -> str:
        number = fields.get(f"tokenizer.ggml.{key}_token_id")
        return tokens[number] if isinstance(number, int) and number < len(tokens) else ""

    return Metadata(
        name=fields.get("general.name", path.stem),
        chat_template=fields.get("tokenizer.chat_template", ""),
        context_tokens=fields.get(f"{architecture}.context_length", 2048),
        bos=token("bos"),
        eos=token("eos"),
        special_tokens=tuple(t for t, k in zip(tokens, kinds, strict=False) if k in (_CONTROL, _USER_DEFINED)),
    )


def _fields(file: IO[bytes]) -> dict[str, Any]:
    if file.read(4) != b"GGUF":
        raise ValueError("expected it to begin with 'GGUF'")
    _number(file, "I")
    _number(file, "Q")
    return {_string(file): _value(file, _number(file, "I")) for _ in range(_count(file))}


def _value(file: IO[bytes], kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, _SCALARS[kind])
    inner, count = _number(file, "I"), _count(file)
    if inner == _STRING:
        return [_string(file) for _ in range(count)]
    form = f"<{count}{_SCALARS[inner]}"
    return list(struct.unpack(form, file.read(struct.calcsize(form))))


def _string(file: IO[bytes]) -> str:
    return file.read(_count(file)).decode("utf-8", "replace")


def _count(file: IO[bytes]) -> int:
    count = _number(file, "Q")
    if count > _LIMIT:
        raise ValueError(f"expected a count below {_LIMIT}, got {count}")
    return count


def _number(file: IO[bytes], form: str) -> int:
    value: int = struct.unpack(f"<{form}", file.read(struct.calcsize(form)))[0]
    return value
