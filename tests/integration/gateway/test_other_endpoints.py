"""Untranslated APIs are forwarded to the upstream with the model; its response is returned byte for byte."""

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server import form
from dragoman.server.paths import PASSTHROUGH_PATHS
from support.fake_upstream import END, HEAD, Play, Server, server, whole
from support.gateway import shape_of
from support.http_client import http_client
from support.scripted_backend import Scripted, eventually, plain, serving

VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}
VECTORS = json.dumps(
    {"object": "list", "data": [VECTOR], "model": "em", "usage": {"prompt_tokens": 7, "total_tokens": 7}}
)
NOT_FOUND = whole(404, '{"error":"no such route"}')
UNAVAILABLE = whole(503, '{"error":"loading"}')


def http(name: str, far: Server, **settings: Any) -> HttpBackend:
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", **{"models": ("em",), "max_retries": 0, **settings}), {})


async def asked(play: Play, path: str, **sent: Any) -> tuple[httpx2.Response, Server]:
    """Returns the response of a gateway with two upstreams, of which only the first gets the request."""
    async with server(play) as far, server(whole(200, "{}")) as other:
        backends = [http("far", far, api_key="secret"), http("other", other, models=("o",))]
        async with (
            serving(Gateway(backends, {"mine": "far/em"})) as (_, url),
            http_client(url) as client,
        ):
            answer = await client.post(path, **sent)
        assert not other.asked
    return answer, far


@pytest.mark.parametrize("name", ["em", "far/em", "mine"])
@pytest.mark.parametrize("path", [*PASSTHROUGH_PATHS, "/rerank"])
async def test_request_is_forwarded_unchanged_except_model_name(path: str, name: str) -> None:
    body = f'{{ "n": 1.50, "model": "{name}", "input": ["a", "é"] }}'
    head = {"authorization": "Bearer client's own", "content-type": "application/json"}
    answer, far = await asked(whole(200, VECTORS), path, content=body.encode(), headers=head)
    assert (answer.status_code, answer.text) == (200, VECTORS)
    ((line, headers, sent),) = far.asked
    assert line == f"POST {path if path.startswith('/v1') else '/v1' + path} HTTP/1.1"
    assert headers["authorization"] == "Bearer secret"
    assert json.loads(sent) == {"n": 1.5, "model": "em", "input": ["a", "é"]}
    assert (sent == body.encode()) is (name == "em")


@pytest.mark.parametrize("name", ["em", "far/em"])
async def test_form_bytes_are_unchanged_except_model_name(name: str) -> None:
    sound = bytes(range(256)) * 9 + b"\r\n--not the boundary\r\n"
    answer, far = await asked(
        whole(200, '{"text":"hi"}'),
        "/v1/audio/transcriptions",
        data={"language": "en", "model": name},
        files={"file": sound},
    )
    assert answer.json() == {"text": "hi"}
    (_, headers, sent) = far.asked[0]
    boundary = form.boundary(headers["content-type"])
    assert boundary is not None
    at = form.form_field(sent, boundary, "model")
    assert at is not None
    assert sent[slice(*at)] == b"em"
    assert sound in sent


async def test_azure_path_sets_model_in_json_and_form() -> None:
    base = "/openai/deployments/em"
    _, far = await asked(whole(200, VECTORS), f"{base}/embeddings?api-version=1", json={"input": "x"})
    assert json.loads(far.asked[0][2]) == {"input": "x", "model": "em"}
    _, far = await asked(whole(200, "{}"), f"{base}/audio/transcriptions", files={"file": b"x"})
    assert b'name="model"\r\n\r\nem\r\n' in far.asked[0][2]


async def test_audio_response_is_forwarded_and_usage_is_counted() -> None:
    async with server(whole(200, "RIFF", "audio/wav")) as far:  # noqa: SIM117
        async with serving(Gateway([http("far", far)])) as (_, url), http_client(url) as client:
            answer = await client.post("/v1/audio/speech", json={"model": "em", "input": "x"})
            assert (answer.headers["content-type"], answer.content) == ("audio/wav", b"RIFF")
            far.play = whole(200, VECTORS)
            async with openai.AsyncOpenAI(api_key="k", base_url=url, http_client=client) as sdk:  # no /v1
                assert (await sdk.embeddings.create(model="em", input="x")).usage.prompt_tokens == 7
                text = (await client.get("/metrics")).text
    assert 'dragoman_requests_total{dialect="passthrough",model="em",status="200",upstream="far"} 2.0' in text
    assert 'dragoman_input_tokens_total{model="em"} 7.0' in text


def event(said: object) -> bytes:
    data = f"data: {json.dumps(said)}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def test_stream_is_forwarded_and_ends_with_error_if_it_breaks_off() -> None:
    first = event({"choices": [{"text": "a"}]})

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + first)
        await far.go.wait()
        writer.write(event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}) + END)

    async with server(play) as far, serving(Gateway([http("far", far)])) as (_, url):  # noqa: SIM117
        async with http_client(url) as client:
            body = {"model": "em", "prompt": "x", "stream": True}
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                assert answer.headers["content-type"] == "text/event-stream"
                pieces = answer.aiter_bytes()
                assert b'"a"' in await anext(pieces)  # before the server sends more
                far.go.set()
                rest = b"".join([piece async for piece in pieces])
            assert rest.endswith(b"data: [DONE]\n\n")
            assert 'dragoman_output_tokens_total{model="em"} 2.0' in (await client.get("/metrics")).text

            async def breaks(far: Server, writer: asyncio.StreamWriter) -> None:
                writer.write(HEAD + first)
                await writer.drain()
                writer.transport.abort()

            far.play = breaks
            told = (await client.post("/v1/completions", json=body)).content
            assert shape_of("", json.loads(told.rpartition(b"data: ")[2]))["type"] == "server_error"


async def test_truncated_response_is_not_completed() -> None:
    async def cut(far: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\ntransfer-encoding: chunked\r\n\r\n4\r\nRIFF\r\n")
        await writer.drain()
        writer.transport.abort()

    with pytest.raises(httpx2.RemoteProtocolError):
        await asked(cut, "/v1/audio/speech", json={"model": "em"})


async def test_client_disconnect_closes_upstream_connection() -> None:
    async def slow(far: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event({}))
        await far.left.wait()
        far.go.set()

    async with server(slow) as far, serving(Gateway([http("far", far)])) as (_, url):
        body = {"model": "em"}
        async with (
            http_client(url) as client,
            client.stream("POST", PASSTHROUGH_PATHS[1], json=body) as answer,
        ):
            await anext(answer.aiter_bytes())
        await eventually(far.go.is_set)


@pytest.mark.parametrize("play", [UNAVAILABLE, NOT_FOUND, whole(401, "{}")])
async def test_passthrough_request_fails_over_to_next_upstream(play: Play) -> None:
    async with server(play) as first, server(whole(200, VECTORS)) as second:
        gateway = Gateway([http("first", first), http("second", second)])
        async with serving(gateway) as (_, url), http_client(url) as client:
            answer = await client.post("/v1/embeddings", json={"model": "em"})
    assert (answer.status_code, len(first.asked), len(second.asked)) == (200, 1, 1)


@pytest.mark.parametrize(
    ("play", "sent", "status", "words"),
    [
        (NOT_FOUND, {"json": {"model": "em"}}, 404, "far answered 404 at /v1/embeddings"),
        (whole(400, '{"error":{"message":"too many inputs"}}'), {"json": {"model": "em"}}, 400, "too many inputs"),
        (whole(302, "", location="http://127.0.0.1:1/"), {"json": {"model": "em"}}, 502, "302"),
        (UNAVAILABLE, {"json": {"model": "em"}}, 503, "loading"),
        (UNAVAILABLE, {"json": {"model": "unknown"}}, 404, "unknown model 'unknown'"),
        (UNAVAILABLE, {"json": {"input": "x"}}, 400, "missing required field 'model'"),
        (UNAVAILABLE, {"json": {"model": 7}}, 400, "expected string"),
        (UNAVAILABLE, {"content": b"no JSON"}, 400, "JSON"),
        (UNAVAILABLE, {"files": {"file": b"x"}}, 400, "missing required field 'model'"),
        (UNAVAILABLE, {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=b"}}, 400, "a form"),
        (
            UNAVAILABLE,
            {"content": b"--b\r\nx: y", "headers": {"content-type": "multipart/form-data; boundary=b"}},
            400,
            "cut off",
        ),
    ],
)
async def test_passthrough_errors_have_openai_shape(play: Play, sent: Any, status: int, words: str) -> None:
    answer, _ = await asked(play, "/v1/embeddings", **sent)
    assert answer.status_code == status
    assert words in shape_of("", answer.json())["message"]


async def test_passthrough_without_upstream_and_request_limits_are_rejected() -> None:
    async with serving(Gateway([Scripted(plain)]), api_keys=("k",), max_body_bytes=1024) as (_, url):
        async with http_client(url, headers={"authorization": "Bearer k"}) as client:
            answer = await client.post("/v1/embeddings", json={"model": "m"})
            assert answer.status_code == 400
            assert "served by scripted, which has no /v1/embeddings" in answer.json()["error"]["message"]
            assert (await client.post("/v1/embeddings", content=b"x" * 1025)).status_code == 413
            assert (await client.get("/v1/embeddings")).headers["allow"] == "POST, OPTIONS"
            foreign = await client.post("/v1/embeddings", json={}, headers={"host": "evil.example"})
            assert foreign.status_code == 403
        async with http_client(url) as stranger:
            assert (await stranger.post("/v1/embeddings", json={})).status_code == 401
