"""A request is retried without past reasoning if the server rejects the signature of the reasoning."""

import json
from collections.abc import AsyncGenerator

import pytest

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.errors import UpstreamError
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from support.events import all_events
from support.scripted_backend import Scripted, served

REASONING = {
    "anthropic_messages": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}]},
    "openai_responses": {"type": "reasoning", "summary": [], "encrypted_content": "x"},
}
REFUSALS = [
    ("anthropic_messages", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    ("openai_responses", "The encrypted content gAAA...Rg== could not be verified."),
    (
        "openai_responses",
        "The encrypted content for item rs_1 could not be verified. "
        "Reason: Encrypted content item_id did not match the target item id.",
    ),
]


@pytest.mark.parametrize(("api", "words"), REFUSALS)
async def test_rejected_signature_is_retried_without_reasoning(api: str, words: str) -> None:
    seen: list[int] = []

    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        thoughts = [p for m in request.messages for p in m.parts if isinstance(p, v.Reasoning)]
        seen.append(len(thoughts))
        if thoughts:
            raise UpstreamError(words, status=400)
        yield Start("", "", 0)
        yield TextDelta("a")
        yield Finish("stop")

    said = [{"role": "user", "content": "hi"}, REASONING[api], {"role": "user", "content": "go on"}]
    body = {"model": "m", "max_tokens": 9, "input" if api == "openai_responses" else "messages": said}
    request = dialects.get(api).read_request(json.dumps(body))
    async with served(script) as far:
        backend = HttpBackend("far", HttpConfig(url=f"{far.url}/v1", api=api), {})
        await backend.start()
        try:
            reply = collect(await all_events(backend.generate(request, ExchangeContext("1", 0, lambda: "x"))))
        finally:
            await backend.close()
    assert seen == [1, 0]
    assert reply.parts == (v.Text("a"),)
