"""Invalid requests get a clear error in the shape of their API, and the gateway keeps running."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.check_each import check_each
from support.gateway import CHAT, MESSAGES, MODEL, Gateway, ask, connect, http_request, shape_of

pytestmark = [pytest.mark.model, pytest.mark.serve]

PATHS = pytest.mark.parametrize("path", [CHAT, MESSAGES])


@pytest.fixture(autouse=True)
def _unharmed(gateway: Gateway) -> Iterator[None]:
    yield
    check_unharmed(gateway)


def check_unharmed(gateway: Gateway) -> None:
    assert gateway.process.poll() is None
    assert gateway.state()["ready"]
    assert not [line for line in gateway.lines if "Traceback" in line]


def without(path: str, *names: str) -> dict[str, object]:
    return {k: v for k, v in ask(path).items() if k not in names}


def user(content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}]}


BODIES: dict[str, tuple[Any, str]] = {
    "not JSON": (b"hello", "expected JSON"),
    "empty": (b"", "the body is empty; expected a JSON object"),
    "cut off": (b'{"model": "m', "expected JSON"),
    "not UTF-8": (b'{"model": "\xff\xfe"}', "expected JSON in UTF-8, got the byte 0xff at position 11"),
    "UTF-16": (json.dumps(ask(CHAT)).encode("utf-16"), "expected JSON"),
    "not an object": ([], "expected object, got array - at $"),
    "a number": (1, "expected object, got number - at $"),
    "null": (None, "expected object, got null - at $"),
    "deep": (b'{"model":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "at most 500 levels"),
    "deep and open": (b"[" * 10_000, "expected"),
    "no model": (without(CHAT, "model"), "missing required field 'model'"),
    "no messages": (without(CHAT, "messages"), "missing required field 'messages'"),
    "no message": (ask(CHAT) | {"messages": []}, "expected at least one message"),
    "model of wrong type": (ask(CHAT) | {"model": 5}, "expected string, got number - at $.model"),
    "messages of wrong type": (ask(CHAT) | {"messages": "hi"}, "expected array, got string - at $.messages"),
    "message of wrong type": (ask(CHAT) | {"messages": ["hi"]}, "expected object, got string - at $.messages[0]"),
    "content of wrong type": (ask(CHAT) | user(5), "got number - at $.messages[0].content"),
    "part of wrong type": (ask(CHAT) | user([5]), "got number - at $.messages[0].content[0]"),
    "part without text": (ask(CHAT) | user([{"type": "text"}]), "missing required field 'text'"),
    "unknown role": (ask(CHAT) | {"messages": [{"role": "usr", "content": "x"}]}, "did you mean 'user'?"),
    "no role": (ask(CHAT) | {"messages": [{"content": "x"}]}, "missing required field 'role' - at $.messages[0]"),
    "stream of wrong type": (ask(CHAT, stream="yes"), "expected boolean, got string - at $.stream"),
    "temperature of wrong type": (ask(CHAT, temperature="hot"), "expected number, got string - at $.temperature"),
    "temperature too high": (ask(CHAT, temperature=9), "got 9 - at $.temperature"),
    "tools of wrong type": (ask(CHAT, tools={}), "expected array, got object - at $.tools"),
    "max_tokens of wrong type": (ask(CHAT, max_tokens="many"), "expected number, got string - at $.max_tokens"),
    "max_tokens of zero": (ask(CHAT, max_tokens=0), "at least 1, got 0 - at $.max_tokens"),
    "max_tokens beyond all numbers": (ask(CHAT, max_tokens=10**400), "$.max_tokens"),
}


def test_invalid_body_is_rejected(subtests: pytest.Subtests, gateway: Gateway) -> None:
    def check(case: tuple[str, str]) -> None:
        title, path = case
        body, words = BODIES[title]
        answer = gateway.post(path, body)
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"].startswith("req_")
        error = shape_of(path, answer.json())
        assert words in error["message"]
        assert error["type"] == "invalid_request_error"
        check_unharmed(gateway)

    check_each(subtests, itertools.product(BODIES, (CHAT, MESSAGES)), check)


def test_error_param_names_invalid_field(gateway: Gateway) -> None:
    answer = gateway.post(CHAT, ask(CHAT) | {"messages": [{"role": "user", "content": 5}]})
    assert shape_of(CHAT, answer.json())["param"] == "messages[0].content"


@PATHS
def test_unknown_model_is_rejected_with_suggestion(path: str, gateway: Gateway) -> None:
    answer = gateway.post(path, ask(path) | {"model": "smolm2-135m"})
    assert answer.status_code == 404
    error = shape_of(path, answer.json())
    assert error["message"] == f"unknown model 'smolm2-135m'; did you mean '{MODEL}'?"
    assert error.get("code", "model_not_found") == "model_not_found"


def test_max_tokens_is_required_for_anthropic(gateway: Gateway) -> None:
    answer = gateway.post(MESSAGES, without(MESSAGES, "max_tokens"))
    assert answer.status_code == 400
    assert "missing required field 'max_tokens'" in shape_of(MESSAGES, answer.json())["message"]


@PATHS
@pytest.mark.parametrize("stream", [False, True])
def test_prompt_over_context_window_is_rejected(path: str, stream: bool, gateway: Gateway) -> None:
    answer = gateway.post(path, ask(path, "hello " * 9000, stream=stream))
    assert answer.status_code == 400
    error = shape_of(path, answer.json())
    if path == CHAT:
        assert error["code"] == "context_length_exceeded"
        assert error["message"].startswith("This model's maximum context length is 8192 tokens. However, your messages")
    else:
        assert error["message"] == "prompt is too long: 9031 tokens > 8192 maximum"


# Size limits


@PATHS
def test_oversized_body_is_rejected_and_connection_kept(path: str, gateway: Gateway) -> None:
    connection = connect(gateway.url)
    connection.sendall(http_request(path, b"", Content_Length="40000009") + b'{"a": "')
    for _ in range(40):
        connection.sendall(b"x" * 1_000_000)
    connection.sendall(b'"}')
    head, body = read_answer(connection)
    assert head.startswith("HTTP/1.1 413 ")
    error = shape_of(path, body)
    assert error["message"] == (
        "expected a body of at most 33554432 bytes, got 40000009 (setting server.max_body_bytes)"
    )
    connection.sendall(http_request(path, b"{}"))  # and the connection can be reused
    assert read_answer(connection)[0].startswith("HTTP/1.1 400 ")
    connection.close()


@PATHS
def test_oversized_chunked_body_is_rejected(path: str, gateway: Gateway) -> None:
    with gateway.client() as client:
        answer = client.post(path, content=(b"x" * 1_000_000 for _ in range(40)))
    assert answer.status_code == 413
    shape_of(path, answer.json())


@PATHS
def test_body_far_over_limit_is_not_read_completely(path: str, gateway: Gateway) -> None:
    connection = connect(gateway.url)
    connection.sendall(http_request(path, b"", Content_Length="1000000000000"))
    with contextlib.closing(connection), pytest.raises(ConnectionError):
        send(connection, megabytes=300)  # the gateway reads up to 134, and the sockets buffer up to 38


def send(connection: Any, megabytes: int) -> None:
    for _ in range(megabytes):
        connection.sendall(b"x" * 1_000_000)


def read_answer(connection: Any) -> tuple[str, Any]:
    """Reads one response with a content-length; returns its head, and its body as JSON."""
    file = connection.makefile("rb")
    head = "".join(iter(lambda: file.readline().decode().replace("\r\n", "\n").lstrip("\n"), ""))
    size = next(line for line in head.splitlines() if line.startswith("content-length"))
    return head, json.loads(file.read(int(size.partition(": ")[2])))


def test_deeply_nested_schema_does_not_crash_process(gateway: Gateway) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(240):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"name": "deep", "input_schema": schema, "description": "deep " * 9000}
    answer = gateway.post(MESSAGES, ask(MESSAGES, tools=[tool], tool_choice={"type": "any"}))
    assert "prompt is too long" in shape_of(MESSAGES, answer.json())["message"]  # everything before that succeeded


def test_invalid_tool_schema_is_relaxed_with_warning(gateway: Gateway) -> None:
    members = ({"type": "objekt"}, {"pattern": "("})
    odd = [{"properties": {"a": member}} for member in members]
    for schema in (*odd, {"$ref": "#/nowhere"}, {"type": "object", "properties": 5}):
        tool = {"name": "odd", "input_schema": schema}
        choice = {"type": "any"}
        answer = gateway.post(MESSAGES, ask(MESSAGES, "Hi.", max_tokens=5, tools=[tool], tool_choice=choice))
        assert answer.status_code == 200
        warned = answer.headers.get("x-dragoman-warnings", "")
        assert "schema_relaxed" in warned


# Methods, paths and encodings


@PATHS
def test_unsupported_method_is_rejected(path: str, gateway: Gateway) -> None:
    with gateway.client() as client:
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            answer = client.request(method, path)
            assert answer.status_code == 405
            assert answer.headers["allow"] == "POST, OPTIONS"
            assert shape_of(path, answer.json())["message"] == f"{method} is not for '{path}'; send POST"


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/v1/models", f"/v1/models/{MODEL}"])
def test_post_to_get_only_path_is_rejected(path: str, gateway: Gateway) -> None:
    answer = gateway.post(path, {})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    assert shape_of(CHAT, answer.json())["message"] == f"POST is not for '{path}'; send GET"


@PATHS
def test_unsupported_content_encoding_is_rejected(path: str, gateway: Gateway) -> None:
    answer = gateway.post(path, b"x", **{"content-encoding": "br"})
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"
    message = "expected content-encoding gzip, deflate, zstd or identity, got 'br'"
    assert shape_of(path, answer.json())["message"] == message


def test_unknown_path_error_has_shape_of_client_api(gateway: Gateway) -> None:
    message = shape_of(CHAT, gateway.post("/v1/chat", {}).json())["message"]
    for route in (f"POST {CHAT}", f"POST {MESSAGES}", "GET /,", "GET /ready", "GET /v1/models,", "GET /v1/models/{id}"):
        assert route in message
    answer = gateway.post("/v1/message", {}, **{"anthropic-version": "2023-06-01"})
    assert answer.status_code == 404
    assert shape_of(MESSAGES, answer.json())["type"] == "not_found_error"


def test_health_checks_of_clients_are_served(gateway: Gateway) -> None:
    with gateway.client() as client:
        assert client.head("/").status_code == 200
        assert client.get("/").json()["name"] == "dragoman"
        assert client.get("/ready").json()["ready"] is True
        assert client.options(CHAT).headers["allow"] == "POST, OPTIONS"
        assert client.get(f"/v1/models/{MODEL}").json()["id"] == MODEL
        missing = client.get("/v1/models/none")
    assert missing.status_code == 404
    assert "unknown model 'none'" in shape_of(CHAT, missing.json())["message"]


def test_non_http_request_gets_status_400(gateway: Gateway) -> None:
    connection = connect(gateway.url)
    connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    connection.close()
