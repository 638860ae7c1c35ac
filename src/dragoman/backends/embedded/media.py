"""Images and recordings for a model with a projector.

A projector (`mmproj`) is a second GGUF file that turns images or sound into embeddings for the model. The prompt has a
mark at the position of each image; the engine replaces it by the image's embeddings.

The engine decodes PNG, JPEG, GIF and BMP (stb_image), WAV, MP3 and FLAC (miniaudio); it would give other data to a
program of the machine, so what does not begin like one of these is not sent.
Source: https://github.com/ggml-org/llama.cpp/blob/master/docs/multimodal.md (2026-11).
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.weights import projector_path
from dragoman.core.errors import ConfigError
from dragoman.core.events import Notice
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Audio, Document, Image, Message, Part, Request, ResultPart, Text, ToolResult
from dragoman.wire.translation import notices_by_name

_IMAGES: Final[tuple[bytes, ...]] = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM")
_SOUNDS: Final[tuple[bytes, ...]] = (b"RIFF", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"fLaC")
"""First bytes of files that the engine decodes."""
_FIRST_BYTES: Final = 12


class Projector(NamedTuple):
    """What a projector file is for."""

    path: Path
    has_vision: bool
    has_audio: bool


NO_PROJECTOR: Final = Projector(Path(), False, False)


def read_projector(path: Path) -> Projector:
    """Returns what the file is for, by its header.

    Args:
        path: The GGUF file.

    Raises:
        ConfigError: The file cannot be read, or is not a projector.
    """
    fields = gguf.fields(path)
    if fields.get("general.architecture") != "clip":
        raise ConfigError(f"expected a projector (an mmproj file), got the model {path}")
    vision, audio = (fields.get(f"clip.has_{kind}_encoder") is True for kind in ("vision", "audio"))
    return Projector(path, vision, audio)


def find_projector(weights: Path, config: EmbeddedConfig) -> Path | None:
    """Returns the projector of a model: that of the settings, that pulled with it, or the only one next to its file.

    Args:
        weights: The model's GGUF file.
        config: The settings.

    Raises:
        ConfigError: The file in the settings does not exist.
    """
    if config.projector:
        path = Path(config.projector).expanduser()
        if not path.is_file():
            raise ConfigError(f"expected a projector file, got {path}, which does not exist - at embedded.projector")
        return path
    if (pulled := projector_path(weights)).is_file():
        return pulled
    if not config.model.endswith(".gguf"):
        return None
    found = [*weights.parent.glob("mmproj*.gguf")]
    return found[0] if len(found) == 1 else None


class MediaPrompt(NamedTuple):
    """A prompt that is cut at the marks of its images and recordings."""

    segments: tuple[str, ...]
    """Text before the first, between two, and after the last."""
    data: tuple[str, ...]
    """One file, in base64, between two segments."""


@dataclass
class MarkedMedia:
    """The images and recordings of one request, and the marks that stand for them in its text."""

    projector: Projector
    id: str = field(default_factory=random_id)
    """Part of each mark. It is random, so no text of a client is taken for one."""
    data: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    """What the model is not shown, by kind."""

    def mark(self, request: Request) -> Request:
        """Returns the request with a mark in place of each image or recording that the model can be shown."""
        return replace(request, messages=tuple(map(self._marked_message, request.messages)))

    def warnings(self) -> list[Notice]:
        """Returns what the model is not shown."""
        return [*notices_by_name("content_dropped", "the model is not shown: {}", self.dropped)]

    def cut(self, prompt: str) -> MediaPrompt:
        """Returns the prompt, cut at its marks. A mark that the chat template left out has no data in the result."""
        pieces = re.split(rf"\[media {self.id} (\d+)\]", prompt)
        return MediaPrompt(tuple(pieces[::2]), tuple(self.data[int(number)] for number in pieces[1::2]))

    def _marked_message(self, message: Message) -> Message:
        if not any(isinstance(part, Image | Audio | Document | ToolResult) for part in message.parts):
            return message
        return replace(message, parts=tuple(self._marked(part) for part in message.parts))

    def _marked(self, part: Part) -> Part:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple(self._marked_media(each) for each in part.parts))
        return self._marked_media(part) if isinstance(part, Image | Audio | Document) else part

    def _marked_media(self, part: ResultPart) -> ResultPart:
        beginnings: tuple[bytes, ...]
        match part:
            case Image():
                name, is_known, beginnings = "images", self.projector.has_vision, _IMAGES
            case Audio():
                name, is_known, beginnings = "audio", self.projector.has_audio, _SOUNDS
            case Document(source) if not source.text:
                name, is_known, beginnings = "files", False, ()
            case _:
                return part
        if reason := _problem(part.source.data, beginnings) if is_known or name == "files" else "this model takes none":
            self.dropped.setdefault(name, f"{name} ({reason})")
            return part
        self.data.append(part.source.data)
        return Text(f"[media {self.id} {len(self.data) - 1}]")


def _problem(data: str, beginnings: tuple[bytes, ...]) -> str:
    """Returns why the engine cannot decode this base64; empty if it can."""
    if not data:
        return "only its URL or id is given, which is not fetched"
    try:
        first = base64.b64decode(data[: _FIRST_BYTES * 4 // 3], validate=True)
    except binascii.Error:
        return "it is not valid base64"
    return "" if first.startswith(beginnings) else "this file format cannot be read"
