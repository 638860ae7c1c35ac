"""A text-only server as a process: `python text_only.py FORMAT` prints its URL and ends with its input.

Server and model are scripted: it has no tools, rejects requests with tools, and streams what a model of this format
might write to a few questions (`ANSWERS`), in the format's own markup, a few characters at a time. The response
depends only on the conversation, which must be plain text.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from dragoman import formats
from dragoman.core.messages import ToolCall
from dragoman.parsing.format import Format

PIECE_CHARS: Final = 3


class Answer(NamedTuple):
    """The model's text if the last message contains `asked`, and the conversation `told`."""

    asked: str
    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    told: str = ""
    thought: str = ""


_EVENT: Final = {
    "title": "Design review",
    "start": "2026-10-01T15:00:00Z",
    "attendees": [{"name": "Ana", "email": "ana@example.com"}, {"name": "Bo", "email": "bo@example.com"}],
    "location": {"city": "Berlin", "room": "4.12"},
}
_NOTE: Final = {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"}
ANSWERS: Final = (
    Answer("clear", "It is 18 degrees in Paris, and the sky is clear."),
    Answer("in Paris and in Tokyo", calls=(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"}))),
    Answer("weather in Paris", calls=(("get_weather", {"city": "Paris", "unit": "c"}),)),
    Answer("17 + 25", "42"),
    Answer("Design review", calls=(("create_event", _EVENT),)),
    Answer("Save a note", calls=(("save_note", _NOTE),)),
    Answer("time is it", calls=(("get_server_time", {}),)),
    Answer("Lisbon", calls=(("get_weather", {"city": "Lisbon"}),), told="must request the tool get_weather"),
    Answer("Lisbon", "Lisbon lies on the Tagus."),
    Answer(
        "9.11 or 9.9", calls=(("record_answer", {"answer": "9.9"}),), thought="9.9 is 9.90, which is more than 9.11."
    ),
)


def written(format: Format, messages: list[dict[str, str]]) -> str:
    """The response to plain turns."""
    last, everything = messages[-1]["content"], "\n".join(message["content"] for message in messages)
    answer = next(each for each in ANSWERS if each.asked in last and each.told in everything)
    opened = next(iter(format.reasoning_tags.items()), None) if answer.thought else None
    thought = f"{opened[0]}\n{answer.thought}\n{opened[1]}\n\n" if opened else ""
    calls = [ToolCall(f"call_{n}", name, json.dumps(a, ensure_ascii=False)) for n, (name, a) in enumerate(answer.calls)]
    return thought + answer.text + (format.write_calls(calls) if calls else "")


class Handler(BaseHTTPRequestHandler):
    """Two paths of Chat Completions."""

    format: Format

    def do_GET(self) -> None:
        self._say(200, {"object": "list", "data": [{"id": "text", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        odd = body.keys() & {"tools", "tool_choice", "parallel_tool_calls", "functions", "response_format"}
        if odd or not all(plain(message) for message in body["messages"]):
            self._say(400, {"error": {"message": f"this server only does text, got {sorted(odd)}", "type": "bad"}})
        elif body.get("stream"):
            self._stream(written(self.format, body["messages"]))
        else:
            message = {"role": "assistant", "content": written(self.format, body["messages"])}
            self._say(200, {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]})

    def _stream(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for at in range(0, len(text), PIECE_CHARS):
            self._chunk({"content": text[at : at + PIECE_CHARS]}, None)
        self._chunk({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, delta: dict[str, str], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "text", "choices": [choice]}
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _say(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def plain(message: dict[str, Any]) -> bool:
    """Whether a message is plain text with a role that every chat template supports."""
    return message.keys() == {"role", "content"} and message["role"] in ("system", "user", "assistant")


def main(name: str) -> None:
    Handler.format = formats.get(name)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
