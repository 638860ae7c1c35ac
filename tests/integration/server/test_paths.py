"""Path resolution: common mistakes in a base URL, Azure's paths, and errors for unknown paths."""

from typing import Any

import anthropic
import httpx2
import openai
import pytest

from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server import paths
from dragoman.server.app import App
from support.fake_upstream import CHAT, FRONTS, MESSAGES, RESPONSES
from support.scripted_backend import Scripted, plain

HELLO = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, object]] = {
    CHAT: {"messages": HELLO},
    MESSAGES: {"messages": HELLO, "max_tokens": 9},
    RESPONSES: {"input": "hi"},
}


def client(**settings: Any) -> httpx2.AsyncClient:
    app = App(Gateway([Scripted(plain)]), ServerConfig(**settings))
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize(
    "form",
    ["{bare}", "/v1{path}", "/openai{path}", "/anthropic{path}", "/api{path}", "/openai{bare}", "/v1/openai{bare}",
     "{path}/", "/{path}", "//v1//v1{bare}//", "/api/openai/v1{bare}"],
)  # fmt: skip
async def test_mistake_in_base_url_is_corrected(path: str, form: str) -> None:
    async with client() as http:
        url = "http://127.0.0.1" + form.format(path=path, bare=path.removeprefix("/v1"))
        answer = await http.post(url, json={"model": "m", **BODIES[path]})
    assert (answer.status_code, "Hello" in answer.text) == (200, True)


@pytest.mark.parametrize("path", ["/models", "/v1/models/", "/api/v1/models", "/v1/v1/models", "/openai/v1/models"])
async def test_mistake_in_model_list_url_is_corrected(path: str) -> None:
    async with client() as http:
        assert "m" in [model["id"] for model in (await http.get(path)).json()["data"]]
        assert (await http.get(f"{path.rstrip('/')}/m")).json()["id"] == "m"


async def test_vendor_sdks_work_with_each_others_base_url() -> None:
    async with (
        client() as http,
        openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1", http_client=http) as bare,
        anthropic.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1/v1", http_client=http) as versioned,
    ):
        said = await bare.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == "Hello"
        told = await versioned.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        assert told.content[0].type == "text"


async def test_azure_sdk_gets_response() -> None:
    async with (
        client(api_keys=("secret",)) as http,
        openai.AsyncAzureOpenAI(
            api_key="secret", api_version="2026-01-01", azure_endpoint="http://127.0.0.1", http_client=http
        ) as sdk,
    ):
        said = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == "Hello"


@pytest.mark.parametrize("body", [{}, {"model": "other"}])
async def test_azure_path_selects_model(body: dict[str, object]) -> None:
    async with client() as http:
        path = "/openai/deployments/m/chat/completions?api-version=1"
        answer = await http.post(path, json={**body, "messages": HELLO})
        assert (answer.status_code, answer.json()["model"]) == (200, "m")
        assert (await http.post(path, content=b"[1]")).status_code == 400
        assert (await http.post(path.replace("/m/", "/unknown/"), json={"messages": HELLO})).status_code == 404


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/proxy/v1/chat/completions", "ends in /v1 for OpenAI clients"),
        ("/proxy/chat/completions", "ends in /v1 for OpenAI clients"),
        ("/proxy/v1/embeddings", "ends in /v1 for OpenAI clients"),
        ("/proxy/v1/messages", "has no /v1 for Anthropic clients"),
        ("/v1/batches", "batches are not available"),
        ("/v1/messages/batches", "batches are not available"),
        ("/v1/files/file-1/content", "files are not available"),
        ("/v1/realtime", "realtime"),
        ("/v1/chat", "there are POST /v1/"),
        ("/", "POST is not for '/'"),
        ("/health/", "send GET"),
    ],
)
async def test_unknown_path_error_says_what_to_do(path: str, words: str) -> None:
    async with client() as http:
        answer = await http.post(path, json={})
    assert answer.status_code in (404, 405)
    assert words in answer.json()["error"]["message"]


def test_served_path_is_unchanged_and_long_path_is_cheap() -> None:
    served = {CHAT, "/v1/models", "/v1/models/a//b/"}
    for path in served:
        assert paths.resolve_path(path, served.__contains__) == (path, "")
    for path in ("/v1" * 100_000, "/" * 300_000, "/api/v1" * 50_000 + CHAT):
        assert paths.resolve_path(path, served.__contains__).path == path
