"""Images for a model that sees none: a vision model describes each once, and the text replaces the image.

client ─HTTP→ gateway with a route ─HTTP→ a vision model, then a text model
"""

import json
from typing import Any

import pytest

from dragoman.config.routes import take_routes
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.image_descriptions import MAX_NEW_IMAGES
from dragoman.gateway.routing.route import Routes
from support.fake_upstream import RESPONSES, Play, server, whole
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import serving
from support.upstreams import upstream

SEEN = whole(200, COMPLETION.replace("Hello", "a red square"))
FAILS = whole(500, '{"error": {"message": "out of memory"}}')
RULE = {"model": "m", "images": True, "use": "text", "describe_images": "vision"}


def picture(path: str, data: str = "aGk=") -> dict[str, Any]:
    url = f"data:image/png;base64,{data}"
    if path == MESSAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    return (
        {"type": "input_image", "image_url": url}
        if path == RESPONSES
        else {"type": "image_url", "image_url": {"url": url}}
    )


def asked(path: str, *parts: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "input_text" if path == RESPONSES else "text", "text": "What is it?"}, *parts]
    return {"input" if path == RESPONSES else "messages": [{"role": "user", "content": content}], "model": "m"} | (
        {"max_tokens": 9} if path == MESSAGES else {}
    )


async def answers(play: Play, *bodies: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any], list[Any]]:
    """The responses, and the messages that the vision model and the text model got."""
    async with server(play) as eye, server(whole(200, COMPLETION)) as text:
        backends = [
            upstream("eye", eye, "vision"),
            upstream("text", text, "text", tool_mode="native", passthrough=True),
        ]
        gateway = Gateway(backends, {"m": "text"}, rules=Routes(take_routes({"routes": [RULE]}, "file")))
        async with serving(gateway) as (_, url), http_client(url) as client:
            responses = [await client.post(path, json=body) for path, body in bodies]
    got = [[json.loads(body)["messages"] for _, _, body in far.asked] for far in (eye, text)]
    return responses, got[0], got[1]


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_description_replaces_image(path: str) -> None:
    body = asked(path, picture(path), picture(path), picture(path, "aGV5"))
    responses, eye, text = await answers(SEEN, (path, body), (path, body))
    assert [each.status_code for each in responses] == [200, 200]
    assert [each.headers["x-dragoman-warnings"].split(",")[0] for each in responses] == ["image_described"] * 2
    assert [each.headers["x-dragoman-attempts"] for each in responses] == ["3", "1"]
    assert [each.headers["x-dragoman-upstream"] for each in responses] == ["text", "text"]
    assert len(eye) == 2  # each image once
    assert all("image_url" in json.dumps(messages) for messages in eye)
    for messages in text:
        assert json.dumps(messages).count("[description of an image: a red square]") == 3
        assert "image_url" not in json.dumps(messages)


async def test_image_in_tool_result_is_described() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [picture(MESSAGES)]}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    _, _, text = await answers(SEEN, (MESSAGES, {"messages": messages, "model": "m", "max_tokens": 9}))
    assert "[description of an image: a red square]" in json.dumps(text)


@pytest.mark.parametrize("play", [FAILS, whole(200, COMPLETION.replace("Hello", ""))])
async def test_image_that_is_not_described_becomes_remark(play: Play) -> None:
    responses, _, text = await answers(play, (CHAT, asked(CHAT, picture(CHAT))))
    assert responses[0].status_code == 200
    assert responses[0].headers["x-dragoman-warnings"].startswith("image_not_described")
    assert "[an image that could not be described]" in json.dumps(text)
    assert "out of memory" not in responses[0].text


async def test_number_of_descriptions_is_bounded() -> None:
    pictures = [picture(CHAT, f"{n:04}") for n in range(MAX_NEW_IMAGES + 3)]
    responses, eye, text = await answers(SEEN, (CHAT, asked(CHAT, *pictures)))
    assert len(eye) == MAX_NEW_IMAGES
    assert json.dumps(text).count("[an image that could not be described]") == 3
    assert responses[0].headers["x-dragoman-warnings"].startswith("image_described, image_not_described")


async def test_request_without_images_is_unchanged() -> None:
    responses, eye, _ = await answers(SEEN, (CHAT, asked(CHAT)))
    assert eye == []
    assert "image" not in responses[0].headers.get("x-dragoman-warnings", "")
