"""Stub servers with the deviations of real ones: the response is a function of the request."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, TypeAlias

from support.fake_upstream import Server, server


class Answer(NamedTuple):
    """An HTTP response."""

    body: str
    status: int = 200
    kind: str = "application/json"
    headers: tuple[str, ...] = ()


Says: TypeAlias = Callable[[str, dict[str, Any]], Answer]
"""Returns the response to a path and a JSON body; the body is empty if none was sent."""
NOTHING_HERE = Answer('{"error": {"message": "no such path"}}', 404)


@contextlib.asynccontextmanager
async def odd(says: Says) -> AsyncIterator[Server]:
    """Starts the stub server on a free port."""

    async def play(server: Server, writer: Any) -> None:
        line, _, sent = server.asked[-1]
        answer = says(line.split(" ")[1], json.loads(sent) if sent else {})
        told = answer.body.encode()
        head = [f"HTTP/1.1 {answer.status} X", f"content-type: {answer.kind}", f"content-length: {len(told)}"]
        writer.write("\r\n".join([*head, *answer.headers, "connection: close", "", ""]).encode() + told)

    async with server(play) as made:
        yield made


def models(*names: str, **more: Any) -> Answer:
    return Answer(json.dumps({"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}))


def refused(words: str, status: int = 400) -> Answer:
    return Answer(json.dumps({"error": {"message": words}}), status)


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def chat(
    asked: dict[str, Any], text: str = "", *calls: dict[str, Any], usage: Any = None, finish: str = "", **delta: Any
) -> Answer:
    """A Chat Completions response, streamed on request; prompt tokens grow with the messages."""
    if usage is None:
        usage = USAGE | {"prompt_tokens": USAGE["prompt_tokens"] + 8 * (len(asked.get("messages", ())) - 1)}
    finish = finish or ("tool_calls" if calls else "stop")
    message: dict[str, Any] = {"role": "assistant", "content": text or None, **delta}
    if calls:
        message["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
    told = {"id": "x", "object": "chat.completion", "usage": usage}
    if not asked.get("stream"):
        return Answer(json.dumps(told | {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}))
    frames: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ]
    return stream(*({"id": "x", "object": "chat.completion.chunk", **frame} for frame in frames))


def stream(*frames: dict[str, Any], done: bool = True) -> Answer:
    said = [*(json.dumps(frame) for frame in frames), *(["[DONE]"] if done else [])]
    return Answer("".join(f"data: {each}\n\n" for each in said), kind="text/event-stream")


def call(name: str = "get_weather", arguments: Any = '{"city": "Paris"}', id: Any = "call_1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
