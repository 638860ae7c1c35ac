"""Whether pictures are taken: a small red one."""

import base64
import struct
import zlib

from dragoman.backends.probe.context import Subject, shown, why
from dragoman.backends.probe.report import Finding
from dragoman.core.messages import Image, MediaSource

WHAT = "images"
_SIDE = 64
_WORDS = "What colour is this? Say one word."
_SEEN_TOKENS = 16
"""A picture is worth more tokens than this to every model that sees it; a placeholder fewer."""


async def measure(subject: Subject) -> Finding:
    """Some servers take a picture and do not show it to the model: then the prompt grows by little."""
    asker = subject.asker
    picture = Image(MediaSource("image/png", base64.b64encode(red_png()).decode()))
    heard = await asker.ask(asker.request(_WORDS, picture, tokens=8))
    if heard.reply is None:
        return Finding(WHAT, "no", why(heard))
    blind = await asker.ask(asker.request(_WORDS, tokens=1))
    more = heard.usage.input_tokens - blind.usage.input_tokens
    if heard.usage.input_tokens and blind.usage.input_tokens and more < _SEEN_TOKENS:
        return Finding(WHAT, "no", f"taken, and not shown to the model ({more} tokens more)", {"tokens": more})
    return Finding(WHAT, "yes", f"the model said {shown(heard.text)} of a red one", {"tokens": more})


def red_png() -> bytes:
    """A red square.

    Source: https://www.w3.org/TR/png-3/ (2025-06).
    """
    rows = (b"\0" + b"\xff\0\0" * _SIDE) * _SIDE
    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
