"""Reads requests from the parent process and passes them to llama.cpp.

Lines of JSON in: the settings first, then
    {"id", "body": {…}}          to complete; a body with "media" has a prompt in segments, between which these files
                                 belong, in base64
    {"id", "post": path, "body"} to make embeddings or rank documents
    {"id", "count": "…"}         to count the tokens of a text
    {"id", "slot": n, "action": "save" or "restore", "filename"}   a slot's state, in the folder of prefixes
    {"cancel": id}               to stop
Lines of JSON out: {"ready": true, "pid"} with the process that holds the model, then for each id
    {"id", "total", "done"}      the prompt: tokens in all, tokens read so far
    {"id", "text"}               more of the reply; "probabilities" by token, if the body has "n_probs"
    {"id", "finish", "usage"}    its end; finish is "stop", "length" or "cancelled"
    {"id", "error"}              or why there is none
    {"id", "piece"}              more of the JSON that answers a "post"
    {"id", "moved", "finish"}    the tokens of a slot that was saved or restored
and {"id", "tokens"} for a count, {"metrics": "…"} for {"metrics": true}. The process ends when its standard input is
closed, so it cannot outlive its parent.

The model runs in this process, by xllamacpp, or in the user's llama-server, which this process starts and ends. Both
listen on the same socket and write their log to standard error.

Facts measured with xllamacpp 2026.10.11549: a callback that returns True stops the generation within one token; a
request that waits for a slot in the engine cannot be stopped, so never more requests are passed on than there are
slots; the GIL is held while weights load. Only the engine's HTTP listener counts tokens, immediately even under load.
It listens on a socket in a private folder, and requires a key that only this process has.
"""

import http.client
import json
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final, Protocol

from .library import Library
from .listener import Listener, private_address
from .program import Program

PIECE_CHARS: Final = 1_000_000
"""Embeddings of many texts would make a line that the parent does not accept."""


class Engine(Protocol):
    """What completes prompts."""

    pid: int
    """The process that holds the model."""

    def complete(self, body: dict[str, Any], took: Callable[[dict[str, Any]], bool]) -> object:
        """Passes chunks to `took`, in the form of xllamacpp, until it returns True."""

    def has_ended(self) -> bool:
        """Returns whether its process has ended, and this one is about to."""

    def close(self) -> None:
        """Ends what would outlive this process."""


def main() -> None:
    """Serves completions until standard input is closed."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not mix with the JSON lines
    settings = json.loads(sys.stdin.buffer.readline())
    _limit_memory(settings["memory_limit_mb"])
    os.umask(0o077)  # files with the state of a slot are for this user only
    key = secrets.token_urlsafe(32)
    listener = Listener(private_address(settings["private"]), key)
    engine: Engine
    engine = Program(settings, listener, key) if settings["command"] else Library(settings, listener.address, key)
    _Worker(engine, listener, out).run()
    engine.close()
    shutil.rmtree(settings["private"], ignore_errors=True)
    os._exit(0)  # threads inside the engine abort an ordinary exit


def _limit_memory(limit_mb: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limit_mb:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_mb << 20, limit_mb << 20))


class _Worker:
    def __init__(self, engine: Engine, listener: Listener, out: Any) -> None:
        self._engine = engine
        self._listener = listener
        self._out = out
        self._lock = threading.Lock()
        self._cancelled: set[int] = set()

    def run(self) -> None:
        self._send({"ready": True, "pid": self._engine.pid})
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "cancel" in message:
                self._cancelled.add(message["cancel"])
            else:
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()

    def _answer(self, message: dict[str, Any]) -> None:
        if "metrics" in message:
            with suppress(OSError, http.client.HTTPException):  # the parent reports a dead engine
                self._send({"metrics": self._listener.text("GET", "/metrics")[1]})
        elif "count" in message:
            self._count(message["id"], message["count"])
        elif "slot" in message:
            self._move_slot(message["id"], message)
        elif "post" in message:
            self._post(message["id"], message["post"], message["body"])
        else:
            self._complete(message["id"], message["body"])

    def _move_slot(self, id: int, message: dict[str, Any]) -> None:
        try:
            tokens = self._listener.move_slot(message["action"], message["slot"], message["filename"])
            self._send({"id": id, "moved": tokens, "finish": "stop", "usage": {}})
        except (OSError, http.client.HTTPException, ValueError, KeyError, AttributeError) as e:
            self._fail(id, f"{message['action']} of a slot: {e}")
        self._cancelled.discard(id)

    def _post(self, id: int, path: str, body: dict[str, Any]) -> None:
        try:
            status, text = self._listener.text("POST", path, json.dumps(body))
        except (OSError, http.client.HTTPException) as e:
            self._fail(id, str(e))
            return
        if status != 200:
            self._send({"id": id, "error": json.loads(text)["error"]})
            return
        for begin in range(0, len(text), PIECE_CHARS):
            self._send({"id": id, "piece": text[begin : begin + PIECE_CHARS]})
        self._send({"id": id, "finish": "stop", "usage": {}})

    def _complete(self, id: int, body: dict[str, Any]) -> None:
        ended = False

        def took(chunk: dict[str, Any]) -> bool:
            nonlocal ended
            message = _message(chunk)
            if message and not ended:
                self._send({"id": id, **message})
            ended = ended or "finish" in message or "error" in message
            return id in self._cancelled

        body |= {"stream": True, "return_progress": True}
        try:
            if "media" in body:
                self._complete_media(body, took)
            else:
                self._engine.complete(body, took)
        except (RuntimeError, ValueError, TypeError) as e:
            self._send({"id": id, "error": {"code": 400, "message": str(e)}})
            ended = True
        except (OSError, http.client.HTTPException, KeyError) as e:
            self._fail(id, str(e))
            ended = True
        if not ended and id in self._cancelled:
            self._send({"id": id, "finish": "cancelled", "usage": {}})
        elif not ended:
            self._fail(id, "the reply broke off")
        self._cancelled.discard(id)

    def _complete_media(self, body: dict[str, Any], took: Callable[[dict[str, Any]], bool]) -> None:
        """Only the engine's listener accepts images and sound."""
        segments, data = body.pop("prompt"), body.pop("media")
        prompt = {"prompt_string": self._listener.media_mark().join(segments), "multimodal_data": data}
        with closing(self._listener.complete(body | {"prompt": prompt})) as chunks:
            for chunk in chunks:
                if took(chunk):
                    return

    def _count(self, id: int, text: str) -> None:
        try:
            self._send({"id": id, "tokens": self._listener.count(text)})
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
            self._fail(id, f"the tokens were not counted: {e}")

    def _fail(self, id: int, why: str) -> None:
        if not self._engine.has_ended():  # the parent reports that to all requests, with the reason
            self._send({"id": id, "error": {"code": 500, "message": why}})

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._out.write(line)


def _message(chunk: dict[str, Any]) -> dict[str, Any]:
    """Returns the message to the parent for one chunk of the engine."""
    if "error" in chunk:
        return {"error": chunk["error"]}
    if "prompt_progress" in chunk:
        progress = chunk["prompt_progress"]
        return {"total": progress["total"], "done": progress["processed"]}
    choice = chunk["choices"][0]
    message = {"text": choice["text"]} if choice["text"] else {}
    if tokens := (choice.get("logprobs") or {}).get("content"):
        message["probabilities"] = {each["token"]: each["prob"] for each in tokens[0].get("top_probs", ())}
    if choice["finish_reason"]:
        message |= {"finish": choice["finish_reason"], "usage": chunk["usage"]}
    return message
