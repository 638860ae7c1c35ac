"""The probe of real servers with a real model: Dragoman itself, by each of its APIs."""

import asyncio
from collections.abc import Iterator

import pytest

from dragoman import dialects
from dragoman.backends.http_config import HttpConfig
from dragoman.backends.probe import DECISIVE, Report, probe
from gateway import MODEL, running

BESIDE = ("streams", "stop strings", "completions", "usage", "context")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the embedded model."""
    with running(tmp_path_factory.mktemp("own")) as gateway:
        yield gateway.url


FEW = 24
"""Tokens: whether a call is begun can be told by them."""


def probed(url: str, *only: str, api: str = "openai_chat") -> Report:
    return asyncio.run(
        probe(HttpConfig(url=url, api=api), {}, MODEL, only=(*DECISIVE, *only), tokens=FEW, within_s=120)
    )


@pytest.mark.parametrize("api", dialects.names())
def test_dragoman_itself_is_probed_by_each_of_its_apis(own: str, api: str) -> None:
    report = probed(own, *BESIDE, api=api)
    found = {finding.what: finding for finding in report.findings}
    assert report.kind == "dragoman"
    assert report.choice.mode == "native"
    assert found["tool_choice"].facts == {"required": "yes", "named": "yes", "none": "yes"}
    assert found["streams"].words.endswith("nothing odd")
    assert found["usage"].facts["whole"]
    assert found["usage"].facts["streamed"]
    assert found["completions"].verdict == "no"
    assert found["context"].facts == {"tokens": 8192}
