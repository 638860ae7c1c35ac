"""What is measured: the scenarios, and the request of each."""

import json
from typing import Final, Literal, NamedTuple

Api = Literal["chat", "messages"]

PATHS: Final[dict[Api, str]] = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}


class Scenario(NamedTuple):
    """One kind of load."""

    name: str
    title: str
    """Head of the table's column."""
    deltas: int
    """Of each stream; 0: a response that is not streamed."""
    conns: int
    requests: int = 0
    """Streams of a round; 0: as many requests as `millis` allow."""
    millis: int = 0
    per_write: int = 1
    rate: int = 0
    """Deltas a second, of each stream."""
    spread: int = 0
    """Milliseconds over which the streams begin."""
    is_tool_call: bool = False

    @property
    def script(self) -> str:
        """The token that selects the upstream's response (`load.c`)."""
        return f"bench-n{self.deltas or 1}-k{self.per_write}-r{self.rate}-t{int(self.is_tool_call)}"

    @property
    def unit(self) -> str:
        """Unit of a result: CPU time."""
        return "µs/delta" if self.deltas else "µs"


SCENARIOS: Final = (
    Scenario("request", "request, not streamed", 0, conns=16, millis=800),
    Scenario("paced", "delta alone", 300, conns=10, requests=10, rate=150, spread=200),
    Scenario("burst", "8 deltas per write", 400, conns=10, requests=10, rate=400, per_write=8, spread=200),
    Scenario("streams", "delta, 200 streams", 100, conns=200, requests=200, rate=50, spread=800),
    Scenario(
        "tools", "delta of a tool call in text", 300, conns=10, requests=10, rate=150, spread=200, is_tool_call=True
    ),
)


def quick(scenario: Scenario) -> Scenario:
    """Returns the scenario with tiny sizes."""
    if not scenario.deltas:
        return scenario._replace(conns=2, millis=0, requests=4)
    return scenario._replace(deltas=16, conns=2, requests=2, spread=0, rate=scenario.rate and 800)


_SCHEMA: Final = {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}
_TOOLS: Final[dict[Api, dict[str, object]]] = {
    "chat": {
        "type": "function",
        "function": {"name": "write_file", "description": "Writes a file.", "parameters": _SCHEMA},
    },
    "messages": {"name": "write_file", "description": "Writes a file.", "input_schema": _SCHEMA},
}


def request_body(api: Api, model: str, script: str, *, stream: bool) -> bytes:
    """Returns a request of 1 KB with a system prompt, three messages and a tool.

    Args:
        api: API of the client.
        model: name by which the proxy routes.
        script: token that selects the upstream's response.
        stream: whether the response is streamed.
    """
    system = f"You are a coding agent ({script}). Keep changes small, run the tests, and explain what you did."
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "Which orders are still to be paid? Write a function that adds up their prices."},
        {"role": "assistant", "content": "I will look at the orders first, and then write the function with a test."},
        {"role": "user", "content": "Good. Orders without a price count as zero. Write it to src/orders.py."},
    ]
    body: dict[str, object] = {"model": model, "max_tokens": 1024, "stream": stream, "tools": [_TOOLS[api]]}
    if api == "messages":
        body |= {"system": system, "messages": messages}
    else:
        body |= {"messages": [{"role": "system", "content": system}, *messages]}
    return json.dumps(body).encode()


HEADERS: Final = {
    "Host": "127.0.0.1",
    "Accept": "*/*",
    "Content-Type": "application/json",
    "Authorization": "Bearer sk-bench",
    "anthropic-version": "2023-06-01",
}


def request_bytes(path: str, body: bytes) -> bytes:
    """Returns the complete HTTP request."""
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in HEADERS.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
