"""The SDKs of OpenAI and Anthropic with a named API key."""

from typing import Final

import anthropic
import openai
import pytest

from dragoman.config.keys import KeyConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.keys.ring import KeyRing
from support.scripted_backend import Scripted, plain, serving

SECRET: Final = "the-secret-of-alice"


async def test_sdks_use_a_key_that_is_limited_to_a_model() -> None:
    keys = KeyRing({"alice": KeyConfig(secret=SECRET, models=("m",))})
    async with serving(Gateway([Scripted(plain, ["hidden"])]), keys=keys) as (_, url):
        own = openai.AsyncOpenAI(api_key=SECRET, base_url=f"{url}/v1", max_retries=0)
        async with own as client:
            reply = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
            assert reply.choices[0].message.content == "Hello"
            assert (await client.responses.create(model="m", input="Hello")).output_text == "Hello"
            assert [model.id async for model in client.models.list()] == ["m"]
            with pytest.raises(openai.NotFoundError) as missing:
                await client.responses.create(model="hidden", input="Hello")
            assert missing.value.code == "model_not_found"
        claude = anthropic.AsyncAnthropic(api_key=SECRET, base_url=url, max_retries=0)
        async with claude as anthropic_client:
            message = await anthropic_client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "Hello"}]
            )
            assert message.content[0].type == "text"
        async with anthropic.AsyncAnthropic(api_key="unknown-key", base_url=url, max_retries=0) as stranger:
            with pytest.raises(anthropic.AuthenticationError):
                await stranger.models.list()
