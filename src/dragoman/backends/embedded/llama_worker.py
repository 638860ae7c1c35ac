"""The child process that runs llama.cpp. `start_worker` starts it and never imports it.

Lines of JSON in: the settings first, then
    {"id", "body": {…}}          to complete; a body with "media" has a prompt in segments, between which these files
                                 belong, in base64
    {"id", "post": path, "body"} to make embeddings or rank documents
    {"id", "count": "…"}         to count the tokens of a text
    {"id", "slot": n, "action": "save" or "restore", "filename"}   a slot's state, in the folder of prefixes
    {"cancel": id}               to stop
Lines of JSON out: {"ready": true}, then for each id
    {"id", "total", "done"}      the prompt: tokens in all, tokens read so far
    {"id", "text"}               more of the reply
    {"id", "finish", "usage"}    its end; finish is "stop", "length" or "cancelled"
    {"id", "error"}              or why there is none
    {"id", "piece"}              more of the JSON that answers a "post"
    {"id", "moved", "finish"}    the tokens of a slot that was saved or restored
and {"id", "tokens"} for a count, {"metrics": "…"} for {"metrics": true}. The process ends when its standard input is
closed, so it cannot outlive its parent.

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
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any, Final

PIECE_CHARS: Final = 1_000_000
"""Embeddings of many texts would make a line that the parent does not accept."""
MOVE_SLOT_S: Final = 120.0
"""A slot is saved or restored between two batches of prompt tokens of other slots."""
COUNT_S: Final = 5.0
"""Counting a megabyte takes a quarter of a second."""


def main() -> None:
    """Serves completions until standard input is closed."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not mix with the JSON lines
    settings = json.loads(sys.stdin.buffer.readline())
    _limit_memory(settings["memory_limit_mb"])
    os.umask(0o077)  # files with the state of a slot are for this user only
    key = secrets.token_urlsafe(32)
    listener = _listener(settings["private"])
    _Worker(_load(settings, listener, key), _Listener(listener, key), out).run()
    shutil.rmtree(settings["private"], ignore_errors=True)
    os._exit(0)  # threads inside the engine abort an ordinary exit


def _listener(private: str) -> tuple[str, int]:
    """Returns the address for the engine's listener: a socket in the private folder, or a loopback port without
    AF_UNIX.
    """
    if hasattr(socket, "AF_UNIX"):
        return os.path.join(private, "engine.sock"), 0
    with socket.create_server(("127.0.0.1", 0)) as probe_socket:
        port: int = probe_socket.getsockname()[1]
        return "127.0.0.1", port


def _limit_memory(limit_mb: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limit_mb:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_mb << 20, limit_mb << 20))


def _load(settings: dict[str, Any], listener: tuple[str, int], key: str) -> Any:
    """Loads the engine; its HTTP listener accepts only requests with the key."""
    try:
        import xllamacpp
    except ImportError as error:
        if "libgomp" not in str(error):
            raise
        # The wheel contains everything else; slim Debian images lack this library.
        raise ImportError(f"{error}; install it: apt-get install libgomp1 (or: dnf install libgomp)") from None

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    if settings["projector"]:
        params.mmproj.path = settings["projector"]
        params.video_ffmpeg_bin_dir = settings["private"]  # a client's data never reaches a program of the machine
    params.n_parallel = settings["max_concurrency"]
    params.n_ctx = settings["context_window"] * settings["max_concurrency"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["reading_threads"]
    params.n_batch = params.n_ubatch = settings["batch_tokens"]
    if settings["pooling"]:  # each text is read in one batch
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type(settings["pooling"])
        params.n_batch = params.n_ubatch = settings["context_window"]
    params.cache_ram_mib = settings["cache_mb"]
    if settings["prefix_dir"]:
        params.slot_save_path = os.path.join(settings["prefix_dir"], "")
    params.warmup = False
    params.verbosity = 1  # errors
    params.endpoint_metrics = True
    params.ui = False
    params.cors_origins = ""
    params.api_keys = [key]
    params.hostnames = [listener[0]]
    if listener[1]:
        params.port = listener[1]
    return xllamacpp.Server(params)


class _Listener:
    """Requests to the engine's HTTP listener."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        self._address = address
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def count(self, text: str) -> int:
        """Returns the number of tokens of a prompt.

        Raises:
            OSError, HTTPException, ValueError: the listener returned no valid response.
        """
        body = json.dumps({"content": text, "add_special": True, "parse_special": True})
        with closing(self._connect(COUNT_S)) as connection:
            return len(_json(self._ask(connection, "POST", "/tokenize", body))["tokens"])

    def media_mark(self) -> str:
        """Returns the text that stands for an image in a prompt; the engine chooses it at random when it starts.

        Raises:
            OSError, HTTPException, ValueError: the listener returned no valid response.
        """
        with closing(self._connect(COUNT_S)) as connection:
            mark: str = _json(self._ask(connection, "GET", "/props"))["media_marker"]
            return mark

    def move_slot(self, action: str, slot: int, filename: str) -> int:
        """Saves a slot to a file or restores it, and returns the number of its tokens.

        Raises:
            OSError, HTTPException, ValueError: the listener returned no valid response.
        """
        path, body = f"/slots/{slot}?action={action}", json.dumps({"filename": filename})
        with closing(self._connect(MOVE_SLOT_S)) as connection:
            answer = _json(self._ask(connection, "POST", path, body))
        tokens: int = answer["n_saved" if action == "save" else "n_restored"]
        return tokens

    def complete(self, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Yields the chunks of a completion, in the engine's own form; closing the iterator stops it.

        Raises:
            OSError, HTTPException, ValueError: the listener returned no valid response.
        """
        with closing(self._connect(None)) as connection:
            answer = self._ask(connection, "POST", "/completion", json.dumps(body))
            if answer.status != 200:
                yield json.loads(answer.read())
                return
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None
    ) -> http.client.HTTPResponse:
        connection.request(method, path, body, self._headers)
        return connection.getresponse()

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost")
        place, port = self._address
        connection.sock = socket.create_connection(self._address) if port else socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout_s)
        if not port:
            connection.sock.connect(place)
        return connection


def _json(answer: http.client.HTTPResponse) -> dict[str, Any]:
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    body: dict[str, Any] = json.loads(answer.read())
    return body


class _Worker:
    def __init__(self, server: Any, listener: _Listener, out: Any) -> None:
        self._server = server
        self._listener = listener
        self._out = out
        self._lock = threading.Lock()
        self._cancelled: set[int] = set()

    def run(self) -> None:
        self._send({"ready": True})
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "cancel" in message:
                self._cancelled.add(message["cancel"])
            elif "metrics" in message:
                self._send({"metrics": self._server.handle_metrics()})
            elif "count" in message:
                threading.Thread(target=self._count, args=(message["id"], message["count"]), daemon=True).start()
            else:
                threading.Thread(target=self._answer, args=(message["id"], message), daemon=True).start()

    def _answer(self, id: int, message: dict[str, Any]) -> None:
        if "slot" in message:
            self._move_slot(id, message)
        elif "post" in message:
            self._post(id, message["post"], message["body"])
        elif "media" in message["body"]:
            self._complete_media(id, message["body"])
        else:
            self._complete(id, message["body"])

    def _move_slot(self, id: int, message: dict[str, Any]) -> None:
        try:
            tokens = self._listener.move_slot(message["action"], message["slot"], message["filename"])
            self._send({"id": id, "moved": tokens, "finish": "stop", "usage": {}})
        except (OSError, http.client.HTTPException, ValueError, KeyError, AttributeError) as e:
            self._send({"id": id, "error": {"code": 500, "message": f"{message['action']} of a slot: {e}"}})
        self._cancelled.discard(id)

    def _post(self, id: int, path: str, body: dict[str, Any]) -> None:
        handle = self._server.handle_rerank if path.endswith("rerank") else self._server.handle_embeddings
        try:
            answer = handle(body)
        except (RuntimeError, ValueError, TypeError) as e:
            answer = {"error": {"code": 400, "message": str(e)}}
        if "error" in answer:
            self._send({"id": id, "error": answer["error"]})
            return
        text = json.dumps(answer)
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

        try:
            self._server.handle_completions(body | {"stream": True, "return_progress": True}, took)
        except (RuntimeError, ValueError, TypeError) as e:
            self._send({"id": id, "error": {"code": 400, "message": str(e)}})
            ended = True
        if not ended:
            self._send({"id": id, "finish": "cancelled", "usage": {}})
        self._cancelled.discard(id)

    def _complete_media(self, id: int, body: dict[str, Any]) -> None:
        """As `_complete`; only the engine's listener accepts images and sound."""
        segments, data = body.pop("prompt"), body.pop("media")
        ended = False
        try:
            prompt = {"prompt_string": self._listener.media_mark().join(segments), "multimodal_data": data}
            chunks = self._listener.complete(body | {"prompt": prompt, "stream": True, "return_progress": True})
            with closing(chunks):
                for chunk in chunks:
                    message = _message(chunk if "error" in chunk else _as_choice(chunk))
                    if message:
                        self._send({"id": id, **message})
                    ended = ended or "finish" in message or "error" in message
                    if id in self._cancelled:
                        break
        except (OSError, http.client.HTTPException, ValueError, KeyError) as e:
            self._send({"id": id, "error": {"code": 500, "message": str(e)}})
            ended = True
        if not ended:
            self._send({"id": id, "finish": "cancelled", "usage": {}})
        self._cancelled.discard(id)

    def _count(self, id: int, text: str) -> None:
        try:
            self._send({"id": id, "tokens": self._listener.count(text)})
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
            self._send({"id": id, "error": {"code": 500, "message": f"the tokens were not counted: {e}"}})

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
    if choice["finish_reason"]:
        return {"finish": choice["finish_reason"], "usage": chunk["usage"], "text": choice["text"]}
    return {"text": choice["text"]} if choice["text"] else {}


def _as_choice(chunk: dict[str, Any]) -> dict[str, Any]:
    """Returns a chunk of `/completion` in the form of those of the engine's Python interface."""
    if "prompt_progress" in chunk:
        return chunk
    choice = {"text": chunk["content"], "finish_reason": None}
    if not chunk["stop"]:
        return {"choices": [choice]}
    choice["finish_reason"] = "length" if chunk["stop_type"] == "limit" else "stop"
    cached = chunk.get("timings", {}).get("cache_n", 0)
    usage = {"completion_tokens": chunk["tokens_predicted"], "prompt_tokens_details": {"cached_tokens": cached}}
    return {"choices": [choice], "usage": usage}


if __name__ == "__main__":
    main()
