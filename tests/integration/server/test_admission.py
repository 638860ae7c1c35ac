"""Access control: API keys, allowed hosts and allowed origins."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from support.gateway import CHAT, MESSAGES, MODEL, Gateway, ask, connect, running, shape_of
from support.scripted_backend import plain, served

pytestmark = [pytest.mark.model, pytest.mark.serve]

ODD_HOSTS = (
    *("evil.com@localhost", "localhost@evil.com", "localhost#evil.com", "localhost/evil.com", "localhost?evil.com"),
    *("localhost:evil", "a://localhost", "localhost:80:80", "localhost,evil.com", "localhost..", ".localhost", "::1"),
)
ODD_ORIGINS = (
    *(
        "http://evil.com:80@localhost",
        "http://localhost@evil.com",
        "http://localhost/evil",
        "http://localhost#evil.com",
    ),
    *("app://localhost", "http:localhost", "//localhost", "http://localhost:evil", "http://localhost?evil.com"),
)
KEYS = ("first-secret-key", "second-secret-key")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with API keys and one allowed host."""
    settings = {"server.api_keys": ", ".join(KEYS), "server.allowed_hosts": "gateway.example"}
    with running(tmp_path_factory.mktemp("home"), settings=settings) as gateway:
        yield gateway


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": KEYS[0]},
        {"authorization": f"Basic {KEYS[0]}"},
        {"x-api-key": "wrong"},
        {"x-api-key": KEYS[0][:-1]},
    ],
)
def test_missing_or_wrong_api_key_is_rejected(headers: dict[str, str], path: str, guarded: Gateway) -> None:
    answer = guarded.post(path, ask(path), **headers)
    assert answer.status_code == 401
    error = shape_of(path, answer.json())
    assert error["message"].startswith("expected an API key in 'Authorization: Bearer …' or 'x-api-key'")
    assert (error.get("code") or error["type"]) == ("invalid_api_key" if path == CHAT else "authentication_error")


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEYS[0]}"},
        {"authorization": f"bearer {KEYS[0]}"},
        {"x-api-key": KEYS[1]},
        {"authorization": "Bearer wrong", "x-api-key": KEYS[1]},
    ],
)
def test_api_key_is_accepted_in_either_header(headers: dict[str, str], guarded: Gateway) -> None:
    with guarded.client(**headers) as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == MODEL
        assert client.post(MESSAGES, json={}).status_code == 400  # authenticated; only the body is invalid


def test_non_ascii_api_key_is_rejected(guarded: Gateway) -> None:
    connection = connect(guarded.url)
    connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: \xff\xe9\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    connection.close()


def test_health_needs_no_key_and_shows_no_secrets(guarded: Gateway) -> None:
    with guarded.client() as client:
        for path in ("/", "/health", "/ready"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "secret" not in answer.text
            assert "url" not in answer.text
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/v1/models").status_code == 401
    with guarded.client(**{"x-api-key": KEYS[0]}) as client:
        assert client.get("/health").json()["backends"]
        assert client.get("/ready").json()["backends"]


def test_api_keys_are_never_logged(guarded: Gateway) -> None:
    answer = guarded.post(MESSAGES, {}, **{"x-api-key": KEYS[0]})
    guarded.record(answer.headers["x-request-id"])
    guarded.post(CHAT, {}, authorization="Bearer not-a-known-key")
    log = "\n".join(guarded.lines)
    assert "secret" not in log
    assert "not-a-known-key" not in log


# Hosts and origins


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost.", "LOCALHOST.:80", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8484", "[::1]", "[::1]:8484"],
)
def test_loopback_hosts_are_allowed(host: str, gateway: Gateway) -> None:
    with gateway.client(host=host) as client:
        assert client.get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8484",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[",
        "[::1",
        "",
        *ODD_HOSTS,
    ],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_foreign_host_is_rejected(path: str, host: str, gateway: Gateway) -> None:
    answer = gateway.post(path, ask(path), host=host)
    assert answer.status_code == 403
    assert f"host '{host}' is not served" in shape_of(path, answer.json())["message"]


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/v1/models"])
def test_foreign_host_is_rejected_on_every_path(path: str, gateway: Gateway) -> None:
    with gateway.client(host="evil.example") as client:
        assert client.get(path).status_code == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:9000"])
def test_loopback_origins_are_allowed(origin: str, gateway: Gateway) -> None:
    assert gateway.post(CHAT, {}, origin=origin).status_code == 400


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://[", "file://", "localhost", *ODD_ORIGINS]
)
def test_foreign_origin_is_rejected(origin: str, gateway: Gateway) -> None:
    answer = gateway.post(CHAT, ask(CHAT), origin=origin)
    assert answer.status_code == 403
    assert f"origin '{origin}' is not served" in shape_of(CHAT, answer.json())["message"]


def test_allowed_host_is_accepted(guarded: Gateway) -> None:
    with guarded.client(host="gateway.example:443", origin="https://gateway.example", **{"x-api-key": KEYS[0]}) as c:
        assert c.get("/v1/models").status_code == 200


async def get(path: str = "/v1/models", headers: dict[str, str] | None = None, **settings: Any) -> httpx2.Response:
    async with served(plain, **settings) as s, s.client() as client:
        return await client.get(path, headers=headers)


NAMES = [
    ("MyBox.local", "mybox.local:80"),
    ("mybox:8484", "MYBOX:9000"),
    ("https://mybox/", "mybox"),
    ("::2", "[::2]:80"),
    ("[::2]:8484", "[::2]"),
    ("*", "any.example"),
]


@pytest.mark.parametrize(("allowed", "host"), NAMES)
async def test_allowed_hosts_accept_several_notations(allowed: str, host: str) -> None:
    assert (await get(headers={"host": host}, allowed_hosts=(allowed,))).status_code == 200


@pytest.mark.parametrize("header", ["host", "origin"])
async def test_host_error_names_setting_to_change(header: str) -> None:
    sent = {"host": "MyBox:8484", "origin": "https://mybox:8484"}[header]
    refused = await get(headers={header: sent})
    assert refused.status_code == 403
    assert "add 'mybox' to server.allowed_hosts" in refused.json()["error"]["message"]
    assert "access-control-allow-origin" not in refused.headers
    assert (await get(headers={header: sent}, allowed_hosts=("mybox",))).status_code == 200


async def test_allowed_origin_gets_cors_headers() -> None:
    origin = "https://app.example:8443"
    for key, status in (("k", 200), ("wrong", 401)):
        headers = {"origin": origin, "x-api-key": key}
        answer = await get(headers=headers, api_keys=("k",), allowed_hosts=("app.example",))
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "origin"
    assert "access-control-allow-origin" not in (await get()).headers


async def test_cors_preflight_needs_no_key() -> None:
    headers = {"origin": "http://localhost:3000", "access-control-request-headers": "authorization,content-type"}
    async with served(plain, api_keys=("k",)) as s, s.client() as client:
        answer = await client.options(CHAT, headers={**headers, "access-control-request-method": "POST"})
    assert answer.status_code == 204
    assert answer.content == b""
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"


@pytest.mark.parametrize("headers", [{"x-api-key": "none", "authorization": "Bearer clé"}, {"x-api-key": "clé"}])
async def test_valid_key_is_accepted_next_to_invalid_one(headers: dict[str, str]) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    async with served(plain, api_keys=("clé",)) as s, s.client() as client:
        assert (await client.get("/v1/models", headers=sent)).status_code == 200


def test_request_without_host_is_rejected(gateway: Gateway) -> None:
    connection = connect(gateway.url)
    connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 403 ")
    connection.close()
