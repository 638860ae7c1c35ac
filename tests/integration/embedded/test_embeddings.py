"""Embeddings and ranks by the embedded engine, through a real gateway (`support.small_models`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from dragoman.backends.embedded import weights
from support.gateway import CHAT, SMALL, Gateway, running
from support.llama_server_program import llama_server_program
from support.small_models import MEAN, RANK, write_pooling_model

pytestmark = [pytest.mark.model, pytest.mark.serve]

EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
LENGTH = 576
"""Of SmolLM2's embeddings."""


def gateway_of(folder: Path, name: str, pooling: int, **more: str) -> Iterator[Gateway]:
    model = folder / f"{name}.gguf"
    write_pooling_model(model, weights.find_weights("smollm2-135m"), pooling)
    settings = {**SMALL, "embedded.context_window": 256, "embedded.model": str(model), **more}
    with running(folder, settings=settings) as gateway:
        yield gateway
    model.unlink()


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    yield from gateway_of(tmp_path_factory.mktemp("home"), "mean", MEAN)


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    yield from gateway_of(tmp_path_factory.mktemp("home"), "rank", RANK)


def refused(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 400
    error: dict[str, Any] = answer.json()["error"]
    return error


def test_openai_sdk_gets_embeddings(embedding: Gateway) -> None:
    client = openai.OpenAI(base_url=f"{embedding.url}/v1", api_key="none")
    plain = client.embeddings.create(model="mean", input=["hello", "good bye"], encoding_format="float")
    packed = client.embeddings.create(model="mean", input="hello")  # the SDK asks for base64
    assert [len(each.embedding) for each in plain.data] == [LENGTH, LENGTH]
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-4)
    assert plain.usage.prompt_tokens > 0
    assert plain.model == "mean"


def test_embeddings_longer_than_a_line_of_the_engine_arrive(embedding: Gateway) -> None:
    answer = embedding.post(EMBEDDINGS, {"model": "mean", "input": [str(n) for n in range(160)]})
    assert len(answer.json()["data"]) == 160
    assert len(answer.content) > 1_000_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"input": "word " * 300}, "at most 256 tokens"),
        ({"input": ""}, "cannot be empty"),
        ({}, "must be provided"),
        ({"input": "a", "dimensions": 64}, "the model's own length"),
    ],
)
def test_invalid_requests_are_refused(embedding: Gateway, body: dict[str, Any], reason: str) -> None:
    assert reason in refused(embedding.post(EMBEDDINGS, {"model": "mean", **body}))["message"]


def test_a_model_of_embeddings_does_not_chat(embedding: Gateway) -> None:
    body = {"model": "mean", "messages": [{"role": "user", "content": "Hello"}]}
    assert "writes no text" in refused(embedding.post(CHAT, body))["message"]
    assert (
        "/v1/rerank" in refused(embedding.post(RERANK, {"model": "mean", "query": "a", "documents": ["b"]}))["message"]
    )


def test_documents_are_ranked(ranking: Gateway) -> None:
    answer = ranking.post(RERANK, {"model": "rank", "query": "cats", "documents": ["dogs", "cats"], "top_n": 2})
    results = answer.json()["results"]
    assert sorted(result["index"] for result in results) == [0, 1]
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]


@pytest.mark.parametrize(("name", "pooling"), [("mean", MEAN), ("rank", RANK)])
def test_llama_server_embeds_and_ranks(name: str, pooling: int, tmp_path: Path) -> None:
    own = {"embedded.engine": "llama-server", "embedded.llama_server": llama_server_program()}
    with contextmanager(gateway_of)(tmp_path, name, pooling, **own) as gateway:
        if pooling == RANK:
            answer = gateway.post(RERANK, {"model": "rank", "query": "cats", "documents": ["dogs", "cats"]})
            assert len(answer.json()["results"]) == 2
            return
        answer = gateway.post(EMBEDDINGS, {"model": "mean", "input": "hello"})
        assert len(answer.json()["data"][0]["embedding"]) == LENGTH
        long = gateway.post(EMBEDDINGS, {"model": "mean", "input": "word " * 300})
        assert "at most 256 tokens" in refused(long)["message"]
