"""An upstream server that completes a prompt with a given text, also if the prompt contains the beginning of it."""

import json
from collections.abc import Callable
from typing import Any

from support.completions_upstream import PROPS
from support.fake_upstream import END, HEAD, Play, whole

Break = Callable[[Any, Any], Any]
"""Ends a response in the middle, given server and writer."""


def chunk(choice: dict[str, Any], **more: Any) -> bytes:
    """One event of a completion as an HTTP chunk."""
    data = f"data: {json.dumps({'object': 'text_completion', 'choices': [choice], **more})}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def resets(server: Any, writer: Any) -> None:
    await writer.drain()
    writer.transport.abort()


async def ends_body(server: Any, writer: Any) -> None:
    writer.write(b"0\r\n\r\n")


async def reports_error(server: Any, writer: Any) -> None:
    data = b'data: {"error": {"message": "out of memory", "code": 500, "type": "server_error"}}\n\n'
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")


async def falls_silent(server: Any, writer: Any) -> None:
    await writer.drain()
    await server.left.wait()


BREAKS: dict[str, Break] = {
    "reset": resets,
    "end of body": ends_body,
    "error event": reports_error,
    "silence": falls_silent,
}


def writes_rest(text: str, stop: int | None = None, broken: Break = resets, props: str = PROPS) -> Play:
    """Writes what follows the prompt of a text, one character for a token; usage counts characters after the prompt.

    Args:
        text: The whole text.
        stop: The position in the text at which the server fails; None: it writes all of it.
        broken: How it fails.
        props: What it reports about its chat template.
    """

    async def play(far: Any, writer: Any) -> None:
        if far.asked[-1][0].startswith("GET /props"):
            await whole(200, props)(far, writer)
            return
        body = json.loads(far.asked[-1][2])
        done = body["prompt"].rpartition("<|im_start|>assistant\n")[2]
        assert text.startswith(done), done
        left = text[len(done) : stop]
        limit = body.get("max_tokens", len(text))
        assert limit > 0, "no token is left"
        writer.write(HEAD + chunk({"text": "", "index": 0, "finish_reason": None}))
        writer.write(b"".join(chunk({"text": char, "index": 0, "finish_reason": None}) for char in left[:limit]))
        if stop is not None and len(left) < limit:
            await broken(far, writer)
            return
        usage = {"prompt_tokens": 50 + len(done), "completion_tokens": len(left[:limit])}
        reason = "length" if len(text) - len(done) > limit else "stop"
        writer.write(chunk({"text": "", "index": 0, "finish_reason": reason}, usage=usage) + END)

    return play
