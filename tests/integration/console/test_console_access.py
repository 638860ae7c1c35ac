"""Who may use the console: pages of other hosts may not, and with API keys only sessions of administrators."""

from urllib.parse import parse_qs, urlsplit

from dragoman.config.keys import KeyConfig
from dragoman.console.security import login_address
from dragoman.server.keys.ring import KeyRing
from support.console import API, CHANGE, ServedConsole, served_console
from support.scripted_backend import plain

ADMIN, USER, OTHER_PORT = "secret-of-admin", "secret-of-user", "http://127.0.0.1:3000"


def ring() -> KeyRing:
    return KeyRing({"boss": KeyConfig(secret=ADMIN, admin=True), "user": KeyConfig(secret=USER)})


async def sign_in(console: ServedConsole, key: str) -> int:
    return (await console.client.post("/console/login", json={"key": key}, headers=CHANGE)).status_code


async def test_without_keys_the_own_page_is_answered_and_pages_of_other_origins_are_refused() -> None:
    async with served_console(plain) as console:
        assert (await console.get("/state")).json()["has_keys"] is False
        own = {"origin": console.url, "sec-fetch-site": "same-origin"}
        assert (await console.get("/state", **own)).status_code == 200
        others = [{"origin": OTHER_PORT}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
        others += [{"sec-fetch-site": "same-site"}, {"host": "attacker.example"}]
        for headers in others:
            answer = await console.get("/state", **headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), headers
            assert "access-control-allow-origin" not in answer.headers
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert (await console.client.get("/console", headers=link)).status_code != 403
        framed = await console.client.get("/console", headers={**link, "sec-fetch-dest": "iframe"})
        assert framed.status_code == 403


async def test_a_change_needs_what_a_form_cannot_send() -> None:
    async with served_console(plain) as console:
        for headers in ({}, {"content-type": "application/json"}, {**CHANGE, "content-type": "text/plain"}):
            answer = await console.client.put(f"{API}/capture", content=b'{"on": true}', headers=headers)
            assert answer.status_code == 403, headers
        assert (await console.get("/state")).json()["capture"]["mode"] == "off"
        assert (await console.change("PUT", "/capture", {"on": True})).json()["mode"] == "memory"
        wrong = await console.change("PUT", "/capture", {"on": "yes"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_request")


async def test_with_keys_a_session_of_an_administrator_is_needed_everywhere() -> None:
    async with served_console(plain, keys=ring()) as console:
        for path in ("/state", "/traffic", "/traffic/stream", "/nothing"):
            assert (await console.get(path)).status_code == 401, path
            assert (await console.get(path, authorization=f"Bearer {USER}")).status_code == 401, path
        page = await console.client.get("/console")
        assert (page.status_code, page.headers["location"]) == (303, "/console/login")
        assert await sign_in(console, "wrong") == 401
        assert await sign_in(console, USER) == 403
        assert (await console.get("/state")).status_code == 401
        assert await sign_in(console, ADMIN) == 200
        assert (await console.get("/state")).json()["key"] == "boss"
        await console.client.post("/console/logout", json={}, headers=CHANGE)
        assert (await console.get("/state")).status_code == 401
        assert (await console.get("/state", authorization=f"Bearer {ADMIN}")).status_code == 200


async def test_every_response_forbids_frames_foreign_scripts_and_caches() -> None:
    async with served_console(plain, keys=ring()) as console:
        for path in ("/console", "/console/login", "/console/api/state", "/console/api/nothing"):
            headers = (await console.client.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_sign_in_returns_to_the_page_that_was_asked_for() -> None:
    pages = {
        "/console": None,
        "/console/": "/console/",
        "/console?search=a%20b": "/console?search=a%20b",
        "/console/exchanges/req_1?with=req_2&x=%0d%0aset-cookie:%20a=b": (
            "/console/exchanges/req_1?with=req_2&x=%0d%0aset-cookie:%20a=b"
        ),
        "/console/a%0d%0aset-cookie:%20a=b": "/console/a%0D%0Aset-cookie%3A%20a%3Db",
        "/console//evil.test/": "/console//evil.test/",
        f"/console/{'a' * 3000}": None,
    }
    async with served_console(plain, keys=ring()) as console:
        for page, expected in pages.items():
            answer = await console.client.get(page)
            location = urlsplit(answer.headers["location"])
            assert (answer.status_code, location.netloc, location.path) == (303, "", "/console/login"), page
            assert parse_qs(location.query) == ({} if expected is None else {"next": [expected]}), page
            assert "set-cookie" not in answer.headers, page
    for path in ("//evil.test/", "/consoles", "/v1/models", "https://evil.test/console/"):
        assert login_address(path, b"") == "/console/login", path
