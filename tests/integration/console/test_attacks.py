"""Attacks on the console over HTTP: by other web pages, by forged sessions, by hostile names, by load."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from dragoman.config.keys import KeyConfig
from dragoman.config.keys_file import read_keys
from dragoman.console.security import read_cookie
from dragoman.console.sessions import COOKIE, LIFETIME_S, Sessions
from dragoman.server.keys.ring import KeyRing, KeysFile
from support.console import API, CHANGE, ServedConsole, served_console
from support.scripted_backend import plain

ADMIN, USER = "secret-of-admin", "secret-of-user"
CHANGES = (
    ("POST", "/console/login", {"key": ADMIN}),
    ("POST", "/console/logout", {}),
    ("PUT", f"{API}/capture", {"on": True}),
    ("POST", f"{API}/send", {"path": "/v1/chat/completions", "body": {"model": "m", "messages": []}}),
    ("POST", f"{API}/exchanges/req_1/replay", {}),
    ("POST", f"{API}/exchanges/req_1/case", {}),
    ("POST", f"{API}/upstreams/far/probe", {}),
    ("POST", f"{API}/models/load", {"model": "m"}),
    ("POST", f"{API}/models/unload", {"model": "m"}),
    ("POST", f"{API}/models/pull", {"model": "m"}),
    ("POST", f"{API}/playground/tools/run", {"name": "x", "arguments": {}}),
)
"""All requests that change something."""
READS = ("/state", "/traffic", "/traffic/stream", "/upstreams", "/models", "/settings", "/reports", "/keys")
TRAVERSALS = (
    "../../../../../../etc/passwd",
    "..%2f..%2f..%2f..%2f..%2f..%2fetc/passwd",
    "%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "..%5c..%5c..%5cetc%5cpasswd",
    "%252e%252e/%252e%252e/etc/passwd",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "x%00.js",
    "../app.py",
    "../../security.py",
    "",
)
NAMES = ("m\nevent: done\ndata: {}\n\n", "m\r\nevent: done\r\n\r\n", "m\u2028event: done", "m\x00\x1b[31m")
BAD_JSON = (
    (b"", 400),
    (b"{", 400),
    (b"[" * 20_000, 400),
    (b'{"on": 1}', 400),
    (b'{"on": true, "more": 1}', 400),
    (b'{"on": true}\xff', 400),
    (b'{"on": true, "x": "' + b"x" * 70_000 + b'"}', 413),
)


def ring(**keys: str) -> KeyRing:
    named = {name: KeyConfig(secret=secret, admin=True) for name, secret in (keys or {"boss": ADMIN}).items()}
    return KeyRing({**named, "user": KeyConfig(secret=USER)})


async def sign_in(console: ServedConsole, key: str = ADMIN) -> str:
    answer = await console.client.post("/console/login", json={"key": key}, headers=CHANGE)
    assert answer.status_code == 200
    cookie = console.client.cookies[COOKIE]
    console.client.cookies.clear()
    return str(cookie)


async def status(console: ServedConsole, cookie: str, path: str = "/state") -> int:
    return (await console.get(path, cookie=f"{COOKIE}={cookie}")).status_code


async def raw(console: ServedConsole, *lines: str, body: bytes = b"") -> bytes:
    """The response to a request that no client would send, until the gateway closes the connection."""
    host, _, port = console.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1") + body)
    with contextlib.closing(writer):
        return await reader.read()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example"},
        {"host": "127.0.0.1.attacker.example"},
        {"host": "localhost@attacker.example"},
        {"origin": "http://attacker.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://127.0.0.1"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
async def test_other_web_pages_can_neither_read_nor_change(headers: dict[str, str]) -> None:
    async with served_console(plain) as console:
        for path in READS:
            answer = await console.get(path, **headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), path
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        for method, path, body in CHANGES:
            answer = await console.client.request(method, path, json=body, headers={**CHANGE, **headers})
            assert answer.status_code == 403, path
        preflight = {"access-control-request-method": "PUT", "access-control-request-headers": "x-dragoman-console"}
        answer = await console.client.options(f"{API}/capture", headers={**preflight, **headers})
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert (await console.get("/state")).json()["capture"]["mode"] == "off"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
async def test_no_form_of_another_page_changes_anything(kind: str) -> None:
    async with served_console(plain) as console:
        for method, path, body in CHANGES:
            headers = {"content-type": kind} if kind else {}
            answer = await console.client.request(method, path, content=json.dumps(body), headers=headers)
            assert answer.status_code == 403, (method, path)
            answer = await console.client.request(method, path, content=json.dumps(body), headers={**headers, **CHANGE})
            assert answer.status_code == 403, (method, path)
        for method in ("GET", "HEAD", "DELETE", "PATCH", "TRACE"):
            answer = await console.client.request(method, f"{API}/capture?on=true", headers=CHANGE)
            assert answer.status_code in (403, 404, 405), method
        assert (await console.get("/state")).json()["capture"]["mode"] == "off"


async def test_with_keys_nothing_with_data_is_answered_without_a_session() -> None:
    async with served_console(plain, keys=ring()) as console:
        for path in (
            *READS,
            "/exchanges/req_1",
            "/exchanges/req_1/stream",
            "/exchanges/req_1/bundle",
            "/playground/tools",
        ):
            assert (await console.get(path)).status_code == 401, path
            assert (await console.client.head(f"{API}{path}")).status_code == 401, path
        for method, path, body in CHANGES[2:]:
            assert (await console.client.request(method, path, json=body, headers=CHANGE)).status_code == 401, path
        for path in ("", "/", "/exchanges/req_1", "/settings", "//api/state", "/api", "/assets"):
            answer = await console.client.get(f"/console{path}")
            assert answer.status_code in (303, 401), path


async def test_sessions_cannot_be_guessed_forged_or_fixed() -> None:
    async with served_console(plain, keys=ring()) as console, served_console(plain, keys=ring()) as other:
        cookie = await sign_in(console)
        expires, _, signature = cookie.partition(".")
        assert await status(console, cookie) == 200
        forged = (
            *(
                "",
                ".",
                "x",
                expires,
                f"{expires}.",
                f".{signature}",
                f"{expires}.{'0' * 64}",
                f"{expires}.{signature}0",
            ),
            *(f"{int(expires) + 1}.{signature}", f"{expires}.{signature[:-1]}", f"{expires}.{signature.upper()}"),
            *(
                f"{'9' * 15}.{signature}",
                f"{'9' * 5000}.{signature}",
                f"-{expires}.{signature}",
                f"+{expires}.{signature}",
            ),
            *(f" {expires}.{signature[::-1]}", f"{expires}e0.{signature}", f"0x{expires}.{signature}"),
            *(await sign_in(other), ADMIN, quote(cookie, safe="") + "%00", f"{cookie}.{cookie}"),
        )
        for each in forged:
            assert await status(console, each) == 401, each
        assert (
            await console.get("/state", cookie=f"a=b; {COOKIE}={forged[6]}; {COOKIE}={forged[7]}")
        ).status_code == 401
        answer = await console.client.post(
            "/console/login", json={"key": ADMIN}, headers={**CHANGE, "cookie": f"{COOKIE}={forged[6]}"}
        )
        fresh = answer.headers["set-cookie"]
        assert forged[6] not in fresh
        for word in ("HttpOnly", "SameSite=strict", "Path=/console", "Max-Age"):
            assert word in fresh


async def test_session_ends_with_its_time_and_with_its_key() -> None:
    now, keys = 1_800_000_000.0, ring()
    sessions = Sessions(b"s" * 32, lambda: now)
    cookie = sessions.begin(ADMIN)
    assert sessions.find(cookie, keys) is not None
    assert sessions.find(cookie, ring(boss="another-secret")) is None
    assert sessions.find(cookie, KeyRing({"boss": KeyConfig(secret=ADMIN)})) is None
    now += LIFETIME_S
    assert sessions.find(cookie, keys) is None


@pytest.mark.parametrize("where", ["settings", "file"])
async def test_key_that_is_revoked_while_signed_in_ends_session_and_its_streams(where: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[keys.boss]\nsecret = "{ADMIN}"\nadmin = true\n')
    keys = ring() if where == "settings" else KeyRing({}, (), KeysFile(path, lambda named: read_keys(named, {})))
    async with served_console(plain, keys=keys) as console:
        cookie = await sign_in(console)
        async with console.client.stream(
            "GET", f"{API}/traffic/stream", headers={"cookie": f"{COOKIE}={cookie}"}
        ) as open:
            assert open.status_code == 200
            lines = open.aiter_lines()
            await anext(lines)
            if where == "settings":
                console.replace_keys(ring(boss="another-secret"))
            else:
                path.write_text(f'[keys.boss]\nsecret = "{ADMIN}"\nadmin = true\nrevoked = "2026-01-01"\n')
            async with asyncio.timeout(20):
                async for _ in lines:
                    pass
        assert await status(console, cookie) == 401


@pytest.mark.parametrize("path", TRAVERSALS)
async def test_only_files_of_the_page_are_served(path: str) -> None:
    async with served_console(plain) as console:
        for folder in ("/console/assets", "/console"):
            answer = await raw(console, f"GET {folder}/{path} HTTP/1.1", "host: 127.0.0.1")
            assert b"root:" not in answer
            assert b"import " not in answer.partition(b"\r\n\r\n")[2][:2000]


@pytest.mark.parametrize(("body", "expected"), BAD_JSON, ids=range(len(BAD_JSON)))
async def test_bad_and_oversized_bodies_are_refused(body: bytes, expected: int) -> None:
    async with served_console(plain) as console:
        headers = {**CHANGE, "content-type": "application/json"}
        answer = await console.client.put(f"{API}/capture", content=body, headers=headers)
        assert answer.status_code == expected, answer.text
        assert len(answer.content) < 1000


async def test_body_that_never_ends_is_cut_off() -> None:
    async with served_console(plain, body_timeout_s=0.2) as console:
        lines = ("host: 127.0.0.1", "x-dragoman-console: 1", "content-type: application/json", "content-length: 100")
        async with asyncio.timeout(20):
            answer = await raw(console, f"PUT {API}/capture HTTP/1.1", *lines, body=b'{"on": ')
        assert answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400")), answer


async def test_number_of_streams_is_bounded() -> None:
    async with served_console(plain) as console, contextlib.AsyncExitStack() as stack:

        async def open_stream() -> int:
            response = await stack.enter_async_context(console.client.stream("GET", f"{API}/traffic/stream"))
            return int(response.status_code)

        statuses = await asyncio.gather(*(open_stream() for _ in range(60)))
        assert (statuses.count(200), statuses.count(503)) == (32, 28)
        await stack.aclose()
        async with asyncio.timeout(20):
            while await open_stream() != 200:
                pass


async def events(console: ServedConsole) -> AsyncIterator[bytes]:
    async with console.client.stream("GET", f"{API}/traffic/stream") as response:
        async for line in response.aiter_raw():
            yield line


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_names_cannot_write_events(name: str) -> None:
    async with served_console(plain, names=(name,)) as console:
        seen = b""
        async with asyncio.timeout(20), contextlib.aclosing(events(console)) as chunks:
            async for chunk in chunks:
                if not seen:
                    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "user": name}
                    await console.client.post("/v1/chat/completions", json=body)
                seen += chunk
                if b'"state":"done"' in seen or b'"state":"failed"' in seen:
                    break
        for event in seen.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")[:-1]:
            head, *rest = event.split(b"\n")
            assert (head, len(rest)) == (b": ping", 0) or (head, len(rest)) == (b"event: rows", 1), event
            assert all(json.loads(line.removeprefix(b"data: ")) is not None for line in rest)


@pytest.mark.parametrize(
    "id", ["x%0d%0aset-cookie:%20a=b", "..%2f..%2fetc", "x%22;filename=evil.exe", "%00", "a" * 9000]
)
async def test_ids_cannot_write_headers_or_name_files(id: str) -> None:
    async with served_console(plain) as console:
        await console.capture()
        for what in ("", "/bundle", "/body", "/code?language=curl", "/context", "/stream"):
            answer = await console.get(f"/exchanges/{id}{what}")
            # The context of an unknown exchange is one without content.
            assert answer.status_code in ((200, 404) if what == "/context" else (400, 404)), what
            assert answer.headers["content-type"] == "application/json"
            assert "set-cookie" not in answer.headers
            assert "content-disposition" not in answer.headers
        answer = await console.change("POST", f"/exchanges/{id}/case", {})
        assert answer.status_code in (400, 404, 405)


def test_cookie_of_backslashes_costs_linear_time() -> None:
    began_s = time.process_time()
    for text in ("\\" * 60_000, ";" * 60_000, "; " * 30_000, f"{COOKIE}=" * 3_000, f";{COOKIE}={'a' * 60_000}"):
        assert read_cookie({"cookie": f'{COOKIE}="{text}"'}) == ""
    assert time.process_time() - began_s < 1  # quadratic time would be more than 20 s
    assert read_cookie({"cookie": f"a=b; {COOKIE}=12.ab; c=d"}) == "12.ab"


async def test_sign_in_to_a_gateway_without_keys_is_refused_with_the_reason() -> None:
    async with served_console(plain) as console:
        answer = await console.client.post("/console/login", json={"key": "\u20ac"}, headers=CHANGE)
        assert (answer.status_code, "has none" in answer.text) == (400, True)


async def test_answer_about_a_bug_has_the_headers_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served_console(plain) as console:
        monkeypatch.setattr(console.app.snapshot.gateway, "models", None)
        answer = await console.get("/state")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "bug")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
