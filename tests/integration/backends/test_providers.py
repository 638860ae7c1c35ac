"""The provider catalog, and requests to a server whose provider is configured."""

import json
import re
from typing import Any

import pytest

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import servers
from dragoman.core.errors import ConfigError
from dragoman.schema.targets import RELAXING_TARGETS
from support.fake_upstream import gateway, server, whole
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client

each_provider = pytest.mark.parametrize("kind", servers.providers(), ids=lambda kind: kind.name)
LOCATION = re.compile(r"host|(POST )?/[\w./]*([@#][^ ]+)")
DATED = re.compile(r"\(.*20\d\d-\d\d\)")


@each_provider
def test_provider_row_is_valid(kind: servers.Provider) -> None:
    assert servers.get(kind.name) is kind
    assert kind.api in dialects.names()
    assert kind.schema_profile in ("", *RELAXING_TARGETS)
    assert set(kind.constrain) <= {each.name for each in servers.constraints()}
    assert kind.signs
    assert DATED.search(kind.source)
    assert all(DATED.search(quirk.source) for quirk in kind.quirks)
    signs = [each for sign in kind.signs for each in (sign, *sign.also)]
    places = [sign.at for sign in signs] + [kind.version, kind.template, *kind.context]
    assert all(LOCATION.fullmatch(place) for place in places if place)
    assert all(re.compile(sign.pattern) for sign in signs)


def test_catalog_names_are_unique() -> None:
    for rows in (servers.providers(), servers.constraints()):
        names = [row.name for row in rows]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("way", servers.constraints(), ids=lambda way: way.name)
def test_constraint_method_has_probe_body_and_source(way: servers.ConstraintMethod) -> None:
    assert json.loads(way.body)
    assert "quorfle" in way.body
    assert re.compile(way.answer_pattern)
    assert DATED.search(way.source) or "XGrammar" in way.source or "xgrammar" in way.source


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("name = 'x'", r"servers file: Object missing required field `title` - at `\$.server\[0\]`"),
        ("name = 'x'\ntitle = 'X'\nsource = 'y'\nsigns = []\nnote = ''", "unknown field `note`"),
        ("name = 'x'\ntitle = 'X'\nsource = 'y'\nsigns = []\nnative = 'sometimes'", "Invalid enum value 'sometimes'"),
    ],
)
def test_invalid_catalog_row_is_rejected(row: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        servers.read(f"[[server]]\n{row}".encode())


def test_unknown_provider_error_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"unknown provider 'vlm'; did you mean 'vllm'.* - at upstreams.far.provider"):
        HttpBackend("far", HttpConfig(url="http://127.0.0.1:1", provider="vlm"), {})


REASONING_MESSAGE: dict[str, Any] = {
    CHAT: {"role": "assistant", "content": "It is 4.", "reasoning_content": "Two and two."},
    MESSAGES: {"role": "assistant", "content": [{"type": "thinking", "thinking": "Two and two.", "signature": "s"}]},
}


async def sent_body(path: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The body that a server with these settings receives for a client's request."""
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **more}
    async with server(ANSWER) as far, gateway(far.url, **settings) as url:
        async with http_client(url) as client:
            assert (await client.post(path, json=asked)).status_code == 200
        body: dict[str, Any] = json.loads(far.asked[0][2])
        return body


ANSWER = whole(200, '{"id": "x", "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}')


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(("kind", "field"), [("vllm", "reasoning"), ("llama_cpp", "reasoning_content")])
async def test_past_reasoning_is_written_to_the_providers_field(kind: str, field: str, path: str) -> None:
    talk = [{"role": "user", "content": "2 + 2?"}, REASONING_MESSAGE[path], {"role": "user", "content": "Sure?"}]
    said = (await sent_body(path, {"provider": kind}, messages=talk))["messages"][1]
    assert said[field] == "Two and two."
    assert len({"reasoning", "reasoning_content"} & set(said)) == 1


UNION = {"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "kept"), [({"provider": "ollama"}, False), ({"provider": "ollama", "schema_profile": "vllm"}, True)]
)
async def test_schema_profile_setting_overrides_provider(settings: dict[str, Any], kept: bool) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": UNION}}
    taken = (await sent_body(CHAT, settings, tools=[tool]))["tools"][0]["function"]["parameters"]
    assert ("anyOf" in taken) is kept
