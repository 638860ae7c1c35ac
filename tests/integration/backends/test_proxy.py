"""The proxy for upstream servers comes from the settings or environment; the latter never applies to localhost."""

import pytest

from dragoman.backends.http.proxy import proxy_for
from dragoman.core.errors import ConfigError
from support.fake_upstream import ask, gateway, server, whole
from support.gateway import CHAT
from support.refusing_upstream import COMPLETION

BOTH = {"HTTPS_PROXY": "http://s:1", "http_proxy": "http://p:2", "NO_PROXY": "example.org,10.0.0.5,.lan:8080"}


@pytest.mark.parametrize(
    ("url", "setting", "environ", "expected"),
    [
        ("https://api.example.com/v1", "", BOTH, "http://s:1"),
        ("http://api.example.com/v1", "", BOTH, "http://p:2"),
        ("https://api.example.com", "", {"all_proxy": "p:3"}, "http://p:3"),
        ("https://api.example.com", "", {"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"}, "http://a:1"),
        ("https://api.example.com", "", {}, None),
        ("https://api.example.com", "", {"HTTPS_PROXY": ""}, None),
        ("https://example.org/v1", "", BOTH, None),
        ("https://a.example.org/v1", "", BOTH, None),
        ("http://10.0.0.5:8000/v1", "", BOTH, None),
        ("http://10.0.0.6:8000/v1", "", BOTH, "http://p:2"),
        ("http://box.lan:8080", "", BOTH, None),
        ("https://api.example.com", "", {**BOTH, "no_proxy": "*"}, None),
        ("http://localhost:1234/v1", "", BOTH, None),
        ("http://127.8.0.1:1234/v1", "", BOTH, None),
        ("http://[::1]:1234/v1", "", BOTH, None),
        ("http://localhost:1234/v1", "http://mine:4", {}, "http://mine:4"),
        ("https://api.example.com", "none", BOTH, None),
    ],
)
def test_proxy_is_selected_from_setting_and_environment(
    url: str, setting: str, environ: dict[str, str], expected: str | None
) -> None:
    assert proxy_for(url, setting, environ) == expected


@pytest.mark.parametrize("proxy", ["socks5://user:secret@p:1", "http://", "p:1"])
def test_invalid_proxy_url_is_rejected_without_its_password(proxy: str) -> None:
    with pytest.raises(ConfigError, match=r"- at servers\.x\.proxy") as told:
        proxy_for("https://a.example", proxy, {}, "servers.x.proxy")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("by_setting", [False, True])
async def test_request_is_sent_through_proxy(by_setting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(whole(200, COMPLETION)) as proxy:
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "http_proxy"):
            monkeypatch.delenv(name, raising=False)
        if not by_setting:
            monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//user:word@"))
        async with gateway("http://models.test", proxy=proxy.url if by_setting else "", api_key="k") as url:
            answer = await ask(url, CHAT, stream=False)
    assert answer.status_code == 200, answer.text
    ((line, headers, _),) = proxy.asked
    assert line == "POST http://models.test/v1/chat/completions HTTP/1.1"
    assert headers["authorization"] == "Bearer k"
    assert headers.get("proxy-authorization", "") == ("" if by_setting else "Basic dXNlcjp3b3Jk")


async def test_unreachable_proxy_is_reported_as_the_reason() -> None:
    async with gateway("http://models.test", proxy="http://127.0.0.1:9") as url:
        answer = await ask(url, CHAT, stream=False)
    assert answer.status_code == 503
    assert "the proxy cannot be reached" in answer.text


async def test_proxy_connect_does_not_contain_api_key() -> None:
    refuses = whole(403, "no")
    async with server(refuses) as proxy, gateway("https://models.test", proxy=proxy.url, api_key="k") as url:
        answer = await ask(url, CHAT, stream=False)
    assert (answer.status_code, "the proxy cannot be reached, or refuses" in answer.text) == (503, True)
    ((line, headers, _),) = proxy.asked
    assert line == "CONNECT models.test:443 HTTP/1.1"
    assert not {"authorization", "proxy-authorization", "x-api-key"} & headers.keys()
