"""Whether images are accepted: a small red one."""

import base64
import struct
import zlib

from dragoman.backends.probe.context import ProbeContext, failure_reason, failure_verdict, quote_line
from dragoman.backends.probe.report import ProbeFinding
from dragoman.backends.probe.server_info import values_at
from dragoman.core.messages import Image, MediaSource
from dragoman.wire.openai_fields import REASONING_FIELDS

_SIDE_PIXELS = 64
_IMAGE_PROMPT = "What colour is this? Say one word."
_MIN_IMAGE_TOKENS = 16
"""Every model that sees an image counts more tokens than this for it; a placeholder has fewer."""


async def check_images(context: ProbeContext) -> ProbeFinding:
    """Some servers accept an image and do not show it to the model: then the prompt grows by little."""
    client = context.client
    picture = Image(MediaSource("image/png", base64.b64encode(red_png()).decode()))
    answer = await client.ask(client.request(_IMAGE_PROMPT, picture, tokens=8))
    if answer.reply is None:
        return ProbeFinding("images", failure_verdict(answer), failure_reason(answer))
    blind = await client.ask(client.request(_IMAGE_PROMPT, tokens=1))
    more = answer.usage.input_tokens - blind.usage.input_tokens
    if answer.usage.input_tokens and blind.usage.input_tokens and more < _MIN_IMAGE_TOKENS:
        return ProbeFinding("images", "no", f"taken, and not shown to the model ({more} tokens more)", {"tokens": more})
    return ProbeFinding("images", "yes", f"the model wrote {quote_line(answer.text)} about a red one", {"tokens": more})


def red_png() -> bytes:
    """A red square.

    Source: https://www.w3.org/TR/png-3/ (2025-06).
    """
    rows = (b"\0" + b"\xff\0\0" * _SIDE_PIXELS) * _SIDE_PIXELS
    head = struct.pack(">IIBBBBB", _SIDE_PIXELS, _SIDE_PIXELS, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


_MESSAGE_PATHS = (["choices", "*", "message"], ["choices", "*", "delta"])


async def check_reasoning(context: ProbeContext) -> ProbeFinding:
    """Of what was heard before."""
    counts = [
        inner
        for answer in context.client.answers
        for frame in answer.frames
        for place in _MESSAGE_PATHS
        for inner in values_at(frame, place, "")
        if isinstance(inner, dict)
    ]
    fields = [name for name in REASONING_FIELDS if any(inner.get(name) for inner in counts)]
    if fields:
        return ProbeFinding("reasoning", "yes", f"in the field {' and '.join(fields)}", {"fields": fields})
    if any(answer.reasoning for answer in context.client.answers):
        return ProbeFinding("reasoning", "yes", "in blocks of their own")
    if any("<think>" in answer.text for answer in context.client.answers):
        return ProbeFinding("reasoning", "partly", "in the text, between <think> tags", {"fields": []})
    return ProbeFinding("reasoning", "unknown", "none came")
