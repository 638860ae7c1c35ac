"""Requests of the child process to the HTTP listener of llama.cpp, the same for both engines."""

import http.client
import json
import os
import socket
from collections.abc import Generator
from contextlib import closing
from typing import Any, Final

MOVE_SLOT_S: Final = 120.0
"""A slot is saved or restored between two batches of prompt tokens of other slots."""
COUNT_S: Final = 5.0
"""Counting a megabyte takes a quarter of a second."""


def private_address(private: str) -> tuple[str, int]:
    """Returns the address for the engine's listener: a socket in the private folder, or a loopback port without
    AF_UNIX.
    """
    if hasattr(socket, "AF_UNIX"):
        return os.path.join(private, "engine.sock"), 0
    with socket.create_server(("127.0.0.1", 0)) as probe_socket:
        port: int = probe_socket.getsockname()[1]
        return "127.0.0.1", port


class Listener:
    """Sends requests to the engine's HTTP listener."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        self.address = address
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

    def is_ready(self) -> bool:
        """Returns whether the engine listens and has loaded the model."""
        try:
            with closing(self._connect(COUNT_S)) as connection:
                return self._ask(connection, "GET", "/health").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def text(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """Returns the status and the text of a response.

        Raises:
            OSError, HTTPException: the listener returned no valid response.
        """
        with closing(self._connect(None)) as connection:
            answer = self._ask(connection, method, path, body)
            return answer.status, answer.read().decode()

    def complete(self, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Yields the chunks of a completion, in the form of xllamacpp; closing the iterator stops it.

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
                    yield _as_choice(json.loads(line[6:]))

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None
    ) -> http.client.HTTPResponse:
        connection.request(method, path, body, self._headers)
        return connection.getresponse()

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost")
        place, port = self.address
        connection.sock = socket.create_connection(self.address) if port else socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout_s)
        if not port:
            connection.sock.connect(place)
        return connection


def _json(answer: http.client.HTTPResponse) -> dict[str, Any]:
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    body: dict[str, Any] = json.loads(answer.read())
    return body


def _as_choice(chunk: dict[str, Any]) -> dict[str, Any]:
    """Returns a chunk of `/completion` in the form of those of the engine's Python interface."""
    if "prompt_progress" in chunk or "error" in chunk:
        return chunk
    choice = {"text": chunk["content"], "finish_reason": None}
    if probabilities := chunk.get("completion_probabilities"):
        choice["logprobs"] = {"content": probabilities}
    if not chunk["stop"]:
        return {"choices": [choice]}
    choice["finish_reason"] = "length" if chunk["stop_type"] == "limit" else "stop"
    cached = chunk.get("timings", {}).get("cache_n", 0)
    usage = {"completion_tokens": chunk["tokens_predicted"], "prompt_tokens_details": {"cached_tokens": cached}}
    return {"choices": [choice], "usage": usage}
