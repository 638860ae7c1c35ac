"""Whether pictures are taken: a small red one."""

import base64
import struct
import zlib

from dragoman.backends.probe.context import Subject, shown, why
from dragoman.backends.probe.report import Finding
from dragoman.backends.probe.server_info import members
from dragoman.core.messages import Image, MediaSource

_SIDE_PIXELS = 64
_IMAGE_PROMPT = "What colour is this? Say one word."
_MIN_IMAGE_TOKENS = 16
"""A picture is worth more tokens than this to every model that sees it; a placeholder fewer."""


async def check_images(subject: Subject) -> Finding:
    """Some servers take a picture and do not show it to the model: then the prompt grows by little."""
    asker = subject.asker
    picture = Image(MediaSource("image/png", base64.b64encode(red_png()).decode()))
    heard = await asker.ask(asker.request(_IMAGE_PROMPT, picture, tokens=8))
    if heard.reply is None:
        return Finding("images", "no", why(heard))
    blind = await asker.ask(asker.request(_IMAGE_PROMPT, tokens=1))
    more = heard.usage.input_tokens - blind.usage.input_tokens
    if heard.usage.input_tokens and blind.usage.input_tokens and more < _MIN_IMAGE_TOKENS:
        return Finding("images", "no", f"taken, and not shown to the model ({more} tokens more)", {"tokens": more})
    return Finding("images", "yes", f"the model said {shown(heard.text)} of a red one", {"tokens": more})


def red_png() -> bytes:
    """A red square.

    Source: https://www.w3.org/TR/png-3/ (2025-06).
    """
    rows = (b"\0" + b"\xff\0\0" * _SIDE_PIXELS) * _SIDE_PIXELS
    head = struct.pack(">IIBBBBB", _SIDE_PIXELS, _SIDE_PIXELS, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_MESSAGE_PATHS = (["choices", "*", "message"], ["choices", "*", "delta"])


async def check_reasoning(subject: Subject) -> Finding:
    """Of what was heard before."""
    said = [
        inner
        for heard in subject.asker.heard
        for frame in heard.frames
        for place in _MESSAGE_PATHS
        for inner in members(frame, place, "")
        if isinstance(inner, dict)
    ]
    fields = [name for name in _REASONING_FIELDS if any(inner.get(name) for inner in said)]
    if fields:
        return Finding("thoughts", "yes", f"in the field {' and '.join(fields)}", {"fields": fields})
    if any(heard.thoughts for heard in subject.asker.heard):
        return Finding("thoughts", "yes", "in blocks of their own")
    if any("<think>" in heard.text for heard in subject.asker.heard):
        return Finding("thoughts", "partly", "in the text, between <think> tags", {"fields": []})
    return Finding("thoughts", "unknown", "none came")
