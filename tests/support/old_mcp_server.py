"""A server of MCP 2025-06-18 by stdio, without the SDK, for tests: it knows the handshake and one tool."""

import json
import sys

SCHEMA = {"type": "object", "properties": {}}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method = message["method"]
        answer: dict[str, object]
        if method == "initialize":
            version = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "old", "version": "1"}}
            answer = {"result": {**version, "capabilities": {"tools": {}}}}
        elif method == "tools/list":
            answer = {"result": {"tools": [{"name": "greet", "description": "Greets.", "inputSchema": SCHEMA}]}}
        elif method == "tools/call":
            answer = {"result": {"content": [{"type": "text", "text": "hello"}]}}
        else:
            answer = {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
