"""A server of MCP 2025-06-18 by HTTP with sessions, without the SDK, for tests: python mcp_session_server.py PORT.

Its tools: `greet`; `wait` returns after `go`; `expire` forgets all sessions; `large` returns a long text; `reset`
closes the connection; `wrong` returns a result that its schema forbids.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAMES = ("greet", "wait", "go", "expire", "large", "reset", "wrong")
SCHEMA = {"type": "object", "properties": {}}
EVENT = threading.Event()
sessions: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if message["method"] == "server/discover":
            self.answer(message, {"error": {"code": -32601, "message": "Method not found"}})
        elif message["method"] == "initialize":
            session = f"s{len(sessions)}-{id(message)}"
            sessions.add(session)
            info = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "sessions", "version": "1"}}
            self.answer(message, {"result": {**info, "capabilities": {"tools": {}}}}, session)
        elif self.headers["mcp-session-id"] not in sessions:
            self.reply(404, b"", {})
        elif "id" not in message:
            self.reply(202, b"", {})
        elif message["method"] == "tools/list":
            tools: list[dict[str, Any]] = [{"name": name, "inputSchema": SCHEMA} for name in NAMES]
            tools[-1]["outputSchema"] = {"type": "object", "required": ["count"]}
            self.answer(message, {"result": {"tools": tools}})
        elif message["params"]["name"] == "reset":
            self.close_connection = True
        else:
            content = [{"type": "text", "text": run(message)}]
            structured = {"structuredContent": {}} if message["params"]["name"] == "wrong" else {}
            self.answer(message, {"result": {"content": content, **structured}})

    def do_GET(self) -> None:
        self.reply(405, b"", {})

    def do_DELETE(self) -> None:
        self.reply(200, b"", {})

    def answer(self, message: dict[str, Any], fields: dict[str, Any], session: str = "") -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **fields}).encode()
        headers = {"content-type": "application/json"} | ({"mcp-session-id": session} if session else {})
        self.reply(200, body, headers)

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def run(message: dict[str, Any]) -> str:
    name = message["params"]["name"]
    if name == "expire":
        sessions.clear()
        return "expired"
    if name == "wait":
        EVENT.wait(30)
    elif name == "go":
        EVENT.set()
    return "x" * 200_000 if name == "large" else "hello"


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
